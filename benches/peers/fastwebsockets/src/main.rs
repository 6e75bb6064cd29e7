//! Sends each line of its input to all its clients, one after the other: on one thread, as fastwebsockets is used with
//! hyper in its examples, without the tasks that read.

use std::{cell::RefCell, error::Error, rc::Rc};

use fastwebsockets::{Frame, Payload, WebSocket, WebSocketError, upgrade};
use http_body_util::Empty;
use hyper::{
    Request, Response, body::Bytes, body::Incoming, server::conn::http1, service::service_fn, upgrade::Upgraded,
};
use hyper_util::rt::TokioIo;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, stdin},
    net::{TcpListener, TcpSocket},
    task::{LocalSet, spawn_local},
};

type Clients = Rc<RefCell<Vec<WebSocket<TokioIo<Upgraded>>>>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let most = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most })?;
    let socket = TcpSocket::new_v4()?;
    socket.bind("127.0.0.1:0".parse()?)?;
    let listener = socket.listen(4_096)?;
    println!("{}", listener.local_addr()?);
    LocalSet::new().run_until(serve(listener)).await
}

async fn serve(listener: TcpListener) -> Result<(), Box<dyn Error>> {
    let clients = Clients::default();
    let accepted = clients.clone();
    spawn_local(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let accepted = accepted.clone();
            let service = service_fn(move |request| open(request, accepted.clone()));
            spawn_local(async move {
                let _ = stream.set_nodelay(true);
                let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                if let Err(error) = connection.with_upgrades().await {
                    eprintln!("no connection: {error}");
                }
            });
        }
    });
    let mut lines = BufReader::new(stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        // Clients that connect meanwhile come behind.
        let mut sockets = clients.take();
        for socket in &mut sockets {
            socket.write_frame(Frame::text(Payload::Borrowed(line.as_bytes()))).await?;
        }
        clients.borrow_mut().append(&mut sockets);
    }
    Ok(())
}

async fn open(mut request: Request<Incoming>, clients: Clients) -> Result<Response<Empty<Bytes>>, WebSocketError> {
    let (response, opening) = upgrade::upgrade(&mut request)?;
    spawn_local(async move {
        match opening.await {
            Ok(socket) => clients.borrow_mut().push(socket),
            Err(error) => eprintln!("no WebSocket: {error}"),
        }
    });
    Ok(response)
}

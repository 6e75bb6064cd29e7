//! A browser, as far as a login needs one: it fills in hidden fields, keeps one cookie, presses the button and follows
//! redirects until one leads to another machine's port.

use std::{io, time::Duration};

use reqwest::{
    Response,
    header::{COOKIE, LOCATION, SET_COOKIE},
};
use url::Url;

use crate::simulator::loopback_client::loopback_client;

const DEADLINE: Duration = Duration::from_secs(10);

/// Signs this person in at a login page of the game's site; the address at which the browser ends, or else the text of
/// the page.
pub async fn sign_in(login_url: &str, person: u64) -> io::Result<Result<String, String>> {
    let http = loopback_client(DEADLINE)?;
    let sent = |request: reqwest::RequestBuilder| async { request.send().await.map_err(io::Error::other) };
    let login = sent(http.get(login_url)).await?;
    let cookie = header(&login, SET_COOKIE.as_str()).split(';').next().unwrap_or_default().to_owned();
    let fields = hidden_fields(&text(login).await?);
    let post = http.post(login_url.split('?').next().unwrap_or_default()).header(COOKIE, cookie).form(&fields);
    let provider = location(&sent(post).await?)?;
    let page = sent(http.get(&provider)).await?;
    let mut fields = hidden_fields(&text(page).await?);
    fields.push(("person".to_owned(), person.to_string()));
    let choose = Url::parse(&provider).and_then(|url| url.join("/openid/choose")).map_err(io::Error::other)?;
    let back = location(&sent(http.post(choose).form(&fields)).await?)?;
    let ended = sent(http.get(back)).await?;
    match location(&ended) {
        Ok(address) => Ok(Ok(address)),
        Err(_) => Ok(Err(text(ended).await?)),
    }
}

fn header<'a>(response: &'a Response, name: &str) -> &'a str {
    response.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn location(response: &Response) -> io::Result<String> {
    match header(response, LOCATION.as_str()) {
        "" => Err(io::Error::other(format!("status {} without a redirect", response.status()))),
        location => Ok(location.to_owned()),
    }
}

async fn text(response: Response) -> io::Result<String> {
    response.text().await.map_err(io::Error::other)
}

/// Names and values of the hidden fields of a page.
fn hidden_fields(page: &str) -> Vec<(String, String)> {
    let attribute = |input: &str, name: &str| {
        let value = input.split_once(&format!("{name}=\""))?.1.split_once('"')?.0;
        Some(value.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&"))
    };
    let inputs = page.split("<input type=\"hidden\"").skip(1);
    inputs.filter_map(|input| Some((attribute(input, "name")?, attribute(input, "value")?))).collect()
}

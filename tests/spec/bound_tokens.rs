//! A stored player token goes to the game server that it was paired with, and to no other: a row whose address is changed past
//! the service does not open, and a server that moves in the game takes its token along.

use companion::{
    config::Database,
    crypto::{keys::Key32, random::Random, sealer::Sealer},
    db::{
        engine::pool::Pool,
        paired_servers::{self, PairedServer},
    },
    simulator::{game_server::DEMO_TOKEN, push_service::PushedServer},
    vault::SecretKind,
};
use diesel::connection::SimpleConnection as _;
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    harness::{
        app::{LINKS, TestApp},
        browser::Browser,
        database::Postgres,
        game::{self, ALICE},
        push::{PHONE, PushTest, named, only_server, pairing, servers},
    },
    upgrade::connected,
};

const KEY: [u8; 32] = [7; 32];

fn row(database: &Database, server: &str) -> PairedServer {
    let pool = Pool::open(database).unwrap();
    pool.read_blocking(|db| paired_servers::get(db, &server.into())).unwrap()
}

/// Stores Alice's token as it was sealed before tokens were bound to address and port; the schema's step has set the number
/// of its key back.
fn seal_as_before(database: &Database, server: &str) {
    let sealer = Sealer::new(&Key32::new(KEY), None, 1, Random::system());
    let sealed = sealer.seal(&SecretKind::PlayerToken.context(server), DEMO_TOKEN.to_string().as_bytes());
    let bound = row(database, server).player_token_sealed;
    let pool = Pool::open(database).unwrap();
    let replace = pool.write_blocking(|db| paired_servers::replace_token(db, &server.into(), &bound, &sealed, 0));
    assert!(replace.unwrap());
}

/// The server, once its link is in this state.
async fn shown(browser: &mut Browser, server: &str, state: &str) -> Value {
    let holds = move |shown: &Value| shown["connection"]["state"] == state;
    browser.get_until(format!("/paired-servers/{server}"), holds).await
}

async fn changed_past_the_service(database: Database, url: String) {
    let key = format!("--creds-encryption-key={}", Key32::new(KEY).to_base64());
    let app = TestApp::start_on(url, &["--allow-private-game-servers=true", LINKS, &key]).await;
    let (game, other) = (game::still(&app).await, game::still(&app).await);
    let mut alice = app.signed_in(ALICE).await;
    let server = game::pair(&mut alice, &game).await;
    shown(&mut alice, &server, "connected").await;
    let bound = row(&database, &server);

    // An older token is read, and bound before it is sent.
    let app = app.restart_after(|| seal_as_before(&database, &server)).await;
    let mut alice = app.again(&alice);
    shown(&mut alice, &server, "connected").await;
    let sealed = row(&database, &server);
    assert_eq!((sealed.player_token_sealed[0], bound.player_token_sealed[0]), (2, 2), "the version with a game server");
    assert_eq!((sealed.key_version, bound.key_version), (1, 1));

    let port = other.addr().port();
    let change = format!("UPDATE paired_servers SET port = {port} WHERE id = '{server}'");
    let app = app.restart_after(|| connected(&database).batch_execute(&change).unwrap()).await;
    let mut alice = app.again(&alice);
    let refused = shown(&mut alice, &server, "no_credentials").await;
    assert_eq!(refused["connection"]["reason"], "the stored pairing cannot be read: pair again");
    assert_eq!(other.connections(), 0);
    // The service is there, and the operator is shown the row.
    let ready = alice.get_until("/ready", |ready| ready["warnings"][0]["path"] == "storedSecrets").await;
    assert_eq!(ready["ok"], true);
    assert_eq!(alice.get("/status").await.json()["unreadableSecrets"], 1);

    // Alice says herself that this is her server.
    assert_eq!(game::pair(&mut alice, &other).await, server);
    shown(&mut alice, &server, "connected").await;
    assert_eq!(other.connections(), 1);
    app.stop().await;
}

#[actix_web::test]
async fn a_row_that_is_changed_past_the_service_sends_its_token_nowhere_on_sqlite() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("test.db");
    changed_past_the_service(Database::Sqlite(file.clone()), format!("sqlite:{}", file.display())).await;
}

#[actix_web::test]
async fn a_row_that_is_changed_past_the_service_sends_its_token_nowhere_on_postgres() {
    let Some(postgres) = Postgres::create() else { return };
    changed_past_the_service(Database::Postgres(postgres.url().into()), postgres.url()).await;
}

#[actix_web::test]
async fn a_server_that_moves_in_the_game_takes_its_token_along() {
    let test = PushTest::start_beside_games().await;
    let (mut alice, _) = test.alice_receiving().await;
    let (game, moved) = (game::still(&test.app).await, game::still(&test.app).await);
    let before = named(&game);
    test.deliver(pairing(&before)).await;
    let server = only_server(&mut alice).await;
    shown(&mut alice, &server, "connected").await;

    let port = moved.addr().port();
    test.push(pairing(&PushedServer { port, ..before }));
    test.until(|push| push.unacknowledged(PHONE.0) == 0).await;
    // The state may be that of the link before.
    let is_there = |shown: &Value| {
        shown["port"] == port && shown["connection"]["state"] == "connected" && moved.connections() == 1
    };
    alice.get_until(format!("/paired-servers/{server}"), is_there).await;
    assert_eq!(servers(&mut alice).await.len(), 1);

    // Also at the next start, from what is stored.
    let test = test.restart().await;
    let mut alice = test.app.again(&alice);
    alice.get_until(format!("/paired-servers/{server}"), is_there).await;
}

//! The leak that `tests/spec_log.rs` must find.

use crate::harness::{app::TestApp, game::ALICE};

#[actix_web::test]
async fn a_secret_is_logged_on_purpose() {
    let app = TestApp::start().await;
    let alice = app.signed_in(ALICE).await;
    log::trace!("on purpose: {:?}", alice.cookies["rp_sess"].as_bytes());
}

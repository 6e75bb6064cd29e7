//! Tools of the tests: the service in a temporary directory, a browser, a relay client that checks what it receives,
//! and neighbours that can misbehave: an identity provider, game servers, a push service, a payment provider and a chat
//! platform.

pub mod app;
pub mod binary;
pub mod browser;
pub mod canary;
pub mod catalogue;
pub mod chat_platform;
pub mod database;
pub mod documented;
pub mod game;
pub mod helper;
pub mod payments;
pub mod pictures;
pub mod provider;
pub mod push;
pub mod raw_socket;
pub mod registration;
pub mod relay_client;

/// One test per database engine: `on_each_database!(name, |app| { … })`.
macro_rules! on_each_database {
    ($name:ident, |$app:ident| $body:block) => {
        mod $name {
            use super::*;

            #[actix_web::test]
            async fn on_sqlite() {
                let $app = crate::harness::app::TestApp::start().await;
                $body
            }

            #[actix_web::test]
            async fn on_postgres() {
                let Some(database) = crate::harness::database::Postgres::create_migrated() else { return };
                let $app = crate::harness::app::TestApp::start_on(database.url(), &[]).await;
                $body
            }
        }
    };
}
pub(crate) use on_each_database;

//! Meanings of the codes of problem documents: `/problems` and a page for each, at the `type` of its documents.

use std::sync::LazyLock;

use actix_web::{HttpRequest, HttpResponse, web};
use maud::{Markup, html};

use crate::{
    api::answer::{
        error::ApiError,
        fixed_answer::FixedAnswer,
        page::{answer, whole, words},
    },
    domain::problem::{ALL, ProblemCode, find},
};

/// All codes of problem documents, as a page.
#[utoipa::path(get, path = "/problems", tag = "documentation", responses(
    (status = 200, content_type = "text/html", body = String),
))]
pub async fn list(req: HttpRequest) -> HttpResponse {
    static PAGE: LazyLock<FixedAnswer> = LazyLock::new(|| FixedAnswer::page(all()));
    PAGE.answer(&req)
}

fn all() -> String {
    let content = html! {
        p { a href="docs" { "All routes" } }
        h1 { "Problems" }
        p {
            "Every refusal and failure is answered with a problem document (RFC 9457, "
            code { "application/problem+json" } "). Programs compare its " code { "code" } "."
        }
        table {
            tr { th { "Code" } th { "Status" } th { "Meaning" } }
            @for known in ALL {
                tr {
                    td { a href={ "problems/" (known.code) } { code { (known.code) } } }
                    td { (statuses(known)) }
                    td { (words(known.meaning)) }
                }
            }
        }
    };
    whole("Problems - companion", &content)
}

/// The meaning of one code and what to do, as a page.
#[utoipa::path(get, path = "/problems/{code}", tag = "documentation", params(("code" = String, Path)), responses(
    (status = 200, content_type = "text/html", body = String),
))]
pub async fn page(code: web::Path<String>) -> Result<HttpResponse, ApiError> {
    let known = find(&code).ok_or(ApiError::NotFound)?;
    let content = html! {
        p { a href="../problems" { "All problems" } " · " a href="../docs" { "All routes" } }
        h1 { (known.title) }
        table {
            tr { th { "Code" } td { code { (known.code) } } }
            tr { th { "Status" } td { (statuses(known)) } }
        }
        h2 { "What it means" }
        p { (words(known.meaning)) }
        h2 { "What to do" }
        p { (words(known.remedy)) }
    };
    Ok(answer(whole(&format!("{} - companion", known.title), &content)))
}

fn statuses(known: &ProblemCode) -> Markup {
    let statuses: Vec<String> = known.statuses.iter().map(u16::to_string).collect();
    html! { (statuses.join(", ")) }
}

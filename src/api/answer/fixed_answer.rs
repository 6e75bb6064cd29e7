//! Answers that are the same for everyone as long as the process runs: compressed once, and sent again only to clients
//! that do not have them.

use std::io::Write as _;

use actix_web::{
    HttpRequest, HttpResponse,
    http::header::{self, AcceptEncoding, ContentEncoding, Encoding, EntityTag, Header as _},
};
use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};

use crate::{
    api::answer::{
        etags::{self, Caching},
        page,
    },
    crypto::digest::sha256_hex,
};

/// See the module.
pub struct FixedAnswer {
    media_type: &'static str,
    is_page: bool,
    plain: Bytes,
    gzip: Bytes,
    /// Weak: the two encodings share it.
    tag: EntityTag,
}

impl FixedAnswer {
    /// A JSON document.
    pub fn json(text: String) -> Self {
        Self::new("application/json", false, text)
    }

    /// An HTML page.
    pub fn page(text: String) -> Self {
        Self::new("text/html; charset=utf-8", true, text)
    }

    fn new(media_type: &'static str, is_page: bool, text: String) -> Self {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(text.as_bytes()).expect("memory takes everything");
        let gzip = encoder.finish().expect("memory takes everything").into();
        let tag = EntityTag::new_weak(sha256_hex(text.as_bytes())[..32].to_owned());
        Self { media_type, is_page, plain: text.into(), gzip, tag }
    }

    /// For this request: 304 if its client has it.
    pub fn answer(&self, req: &HttpRequest) -> HttpResponse {
        let (mut answer, is_known) = etags::begin(req, &self.tag, Caching::Public);
        answer.insert_header((header::VARY, "accept-encoding"));
        if self.is_page {
            answer.insert_header((header::CONTENT_SECURITY_POLICY, page::policy()));
        }
        if is_known {
            return answer.finish();
        }
        answer.content_type(self.media_type);
        if takes_gzip(req) {
            return answer.insert_header(ContentEncoding::Gzip).body(self.gzip.clone());
        }
        answer.body(self.plain.clone())
    }
}

/// A mark in the extensions of an answer: a file that a page loads, with no more headers than it is read with.
pub struct FileOfAPage;

/// True if the client says that it reads gzip.
pub fn takes_gzip(req: &HttpRequest) -> bool {
    let gzip = Encoding::gzip();
    let accepted = AcceptEncoding::parse(req).ok();
    accepted.and_then(|accepted| accepted.negotiate([&gzip].into_iter())).is_some_and(|encoding| encoding == gzip)
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    #[test]
    fn gzip_is_for_those_who_name_it() {
        for (field, takes) in
            [("gzip", true), ("br, GZIP;q=0.5", true), ("gzip;q=0", false), ("gzip; q=0.000", false), ("br", false)]
        {
            let request = TestRequest::default().insert_header((header::ACCEPT_ENCODING, field)).to_http_request();
            assert_eq!(takes_gzip(&request), takes, "{field}");
        }
    }
}

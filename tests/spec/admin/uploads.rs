//! Images: what is taken, what is refused and leaves nothing behind, and how they are shown.

use std::{fs, io::Cursor, path::Path, time::Duration};

use image::ImageFormat;
use reqwest::{
    Method,
    header::{CONTENT_TYPE, ORIGIN},
};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use super::{audited, start};
use crate::harness::{
    app::{ADA, ADMINS, BASE, FRONTEND, TestApp},
    browser::{Answer, Browser},
    catalogue,
    game::ALICE,
    pictures::{form, form_type, picture, png},
    relay_client::PATIENCE,
};

const ICON: &str = "/admin/items/upload-icon";
const WIKI: &str = "/admin/wiki/image";

/// All files below this directory.
fn files(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let files = entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path.display().to_string()] });
    files.collect()
}

fn kept(app: &TestApp) -> Vec<String> {
    files(&app.directory().join("images"))
}

fn path(answer: &Answer) -> String {
    assert_eq!(answer.status, 201, "{}", answer.text());
    answer.json()["url"].as_str().unwrap().strip_prefix(BASE).unwrap().to_owned()
}

#[actix_web::test]
async fn an_image_is_written_again_and_shown_for_ever() {
    let (app, mut ada) = start().await;
    let mut visitor = app.browser();
    for (route, format, media) in [(ICON, ImageFormat::Png, "image/png"), (WIKI, ImageFormat::WebP, "image/webp")] {
        let sent = picture(format, 3, 200, 100);
        let path = path(&ada.upload(route, &sent).await);
        let name = path.strip_prefix("/images/").unwrap();
        let shown = visitor.get(&path).await;
        assert_eq!((shown.status, shown.header("content-type")), (200, Some(media)));
        assert_eq!(shown.header("cache-control"), Some("public, max-age=31536000, immutable"));
        assert_eq!(shown.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(shown.header("cross-origin-resource-policy"), Some("cross-origin"));
        assert!(shown.header("content-security-policy").unwrap().contains("default-src 'none'"));
        let digest = ring::digest::digest(&ring::digest::SHA256, shown.bytes());
        let digest: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(name.split('.').next(), Some(digest.as_str()), "it is named by its bytes");
        let decoded = |bytes: &[u8]| image::load_from_memory(bytes).unwrap().to_rgba8();
        assert_eq!(decoded(shown.bytes()), decoded(&sent));
        let tag = shown.header("etag").unwrap();
        let known = visitor.send(visitor.request(Method::GET, &path).header("if-none-match", tag)).await;
        assert_eq!((known.status, known.bytes()), (304, &b""[..]));
    }
    assert_eq!(kept(&app).len(), 2);
    let entries = audited(&mut ada, 9).await;
    let recorded: Vec<_> = entries.iter().map(|entry| (&entry["action"], &entry["result"])).collect();
    let [begun, done] = [json!("begun"), json!("done")];
    let action = json!("image.upload");
    assert_eq!(recorded, [(&action, &done), (&action, &begun), (&action, &done), (&action, &begun)]);
    for missing in ["x.png", "..%2fcompanion.lock", &format!("{}.png", "a".repeat(64)), "%00"] {
        assert_eq!(visitor.get(&format!("/images/{missing}")).await.status, 404, "{missing}");
    }
}

#[actix_web::test]
async fn a_polyglot_is_cut_to_its_image() {
    let (app, mut ada) = start().await;
    let mut polyglot = png(5);
    polyglot.extend(b"<script>alert(1)</script>PK\x03\x04");
    let path = path(&ada.upload(ICON, &polyglot).await);
    let shown = app.browser().get(&path).await;
    assert!(!shown.text().contains("script"));
}

/// Nine million pixels in a few kilobytes.
fn bomb() -> Vec<u8> {
    let mut file = Cursor::new(Vec::new());
    image::GrayImage::new(3_000, 3_000).write_to(&mut file, ImageFormat::Png).unwrap();
    file.into_inner()
}

#[actix_web::test]
async fn what_is_no_image_for_us_is_refused_and_leaves_nothing() {
    let (app, mut ada) = start().await;
    let truncated = |format| {
        let file = picture(format, 1, 64, 64);
        file[..file.len() - 30].to_vec()
    };
    let jpeg = {
        let mut file = Cursor::new(Vec::new());
        image::RgbImage::new(8, 8).write_to(&mut file, ImageFormat::Jpeg).unwrap();
        file.into_inner()
    };
    let gif_polyglot = [b"GIF89a".to_vec(), png(1)].concat();
    for (what, file) in [
        ("nothing", vec![]),
        ("an SVG", b"<svg xmlns=\"http://www.w3.org/2000/svg\"><script/></svg>".to_vec()),
        ("a page", b"<!doctype html><script>alert(1)</script>".to_vec()),
        ("a JPEG", jpeg),
        ("a GIF with a PNG in it", gif_polyglot),
        ("half a PNG", truncated(ImageFormat::Png)),
        ("half a WebP", truncated(ImageFormat::WebP)),
        ("a pixel bomb", bomb()),
        ("too wide", picture(ImageFormat::Png, 1, 1_025, 1)),
        ("noise", (0..100_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect()),
    ] {
        let problem = ada.upload(ICON, &file).await.expect_problem(400, "invalid_image");
        assert!(problem["detail"].as_str().unwrap().starts_with("The image "), "{what}: {problem}");
    }
    assert!(ada.upload(WIKI, &bomb()).await.expect_problem(400, "invalid_image")["detail"].is_string());
    let limit = 5_000_000;
    let too_large = [png(1), vec![0; limit]].concat();
    for file in [&too_large[..=limit], &too_large[..], &vec![0; 3 * limit]] {
        ada.upload(ICON, file).await.expect_problem(413, "body_too_large");
    }
    assert_eq!(path(&ada.upload(ICON, &too_large[..limit]).await).len(), 76, "5 MB are taken");
    assert_eq!(kept(&app).len(), 1);
    assert_eq!(audited(&mut ada, 9).await.len(), 2, "of the one that was taken");
}

#[actix_web::test]
async fn a_file_without_a_length_is_cut_off_while_it_arrives() {
    let (app, ada) = start().await;
    let mut stream = TcpStream::connect(app.address).await.unwrap();
    stream.write_all(head(&ada, "Transfer-Encoding: chunked").as_bytes()).await.unwrap();
    let form = form("file", &[png(1), vec![0; 6_000_000]].concat());
    for chunk in form.chunks(60_000) {
        let chunk = [format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat();
        // The request may be refused before it is written.
        if stream.write_all(&chunk).await.is_err() {
            break;
        }
    }
    let answer = until_closed(stream).await;
    assert!(answer.starts_with("HTTP/1.1 413 ") && answer.contains("body_too_large"), "{answer}");
    assert_eq!(kept(&app), [""; 0]);
}

#[actix_web::test]
async fn an_upload_that_never_ends_or_breaks_off_leaves_nothing() {
    let (app, ada) = start().await;
    let form = form("file", &png(1));
    let begin = async |bytes: usize| {
        let mut stream = TcpStream::connect(app.address).await.unwrap();
        stream.write_all(head(&ada, &format!("Content-Length: {}", form.len())).as_bytes()).await.unwrap();
        stream.write_all(&form[..bytes]).await.unwrap();
        stream
    };
    drop(begin(form.len() / 2).await);
    let late = until_closed(begin(form.len() / 2).await).await;
    assert!(late.starts_with("HTTP/1.1 408 ") && late.contains(r#""code":"request_timeout""#), "{late}");
    assert_eq!(kept(&app), [""; 0]);
    let mut ada = app.again(&ada);
    assert!(audited(&mut ada, 9).await.is_empty());
}

fn head(browser: &Browser, length: &str) -> String {
    let cookies: Vec<String> = browser.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
    format!(
        "POST {ICON} HTTP/1.1\r\nHost: a\r\nOrigin: {FRONTEND}\r\nCookie: {}\r\nContent-Type: {}\r\n{length}\r\n\r\n",
        cookies.join("; "),
        form_type(),
    )
}

async fn until_closed(mut stream: TcpStream) -> String {
    let mut answer = Vec::new();
    let _ = timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("the service closes the connection");
    String::from_utf8_lossy(&answer).into_owned()
}

#[actix_web::test]
async fn a_form_is_one_file_and_nothing_else() {
    let (app, mut ada) = start().await;
    let file = form("file", &png(1));
    let (start, end) = file.split_at(file.len() - 4);
    let two = [start, b"\r\n", &file[..]].concat();
    let unfinished = start[..start.len() - 20].to_vec();
    for body in [form("icon", &png(1)), two, unfinished, b"no form".to_vec(), Vec::new()] {
        ada.send_form(ICON, body).await.expect_problem(400, "invalid_request");
    }
    assert_eq!(end, b"--\r\n");
    for (content_type, status) in
        [("application/json", 415), ("image/png", 415), ("multipart/form-data", 400), ("nonsense", 415)]
    {
        let request = ada.request(Method::POST, ICON).header(ORIGIN, FRONTEND).header(CONTENT_TYPE, content_type);
        assert_eq!(ada.send(request.body(file.clone())).await.status, status, "{content_type}");
    }
    let mut alice = app.signed_in(ALICE).await;
    alice.upload(ICON, &png(1)).await.expect_problem(403, "not_admin");
    app.browser().upload(WIKI, &png(1)).await.expect_problem(401, "unauthenticated");
    let request = ada.request(Method::POST, ICON).header(ORIGIN, "https://evil.test").header(CONTENT_TYPE, form_type());
    ada.send(request.body(file.clone())).await.expect_problem(403, "cross_site_request");
    assert_eq!(kept(&app), [""; 0]);
}

#[actix_web::test]
async fn an_image_that_nothing_uses_is_gone_after_a_day() {
    let _catalogue = catalogue::alone().await;
    let (app, mut ada) = start().await;
    let [used, unused] = [png(1), png(2)];
    let used = path(&ada.upload(ICON, &used).await);
    let unused = path(&ada.upload(ICON, &unused).await);
    let item = json!({ "shortname": "test.used.icon", "name": "Used", "category": "Test", "iconUrl": used });
    assert_eq!(ada.put("/admin/items/700011", &item).await.status, 200);
    app.clock.advance(chrono::Duration::hours(25));
    // The service looks at each start, and every minute.
    let app = app.restart().await;
    let mut visitor = app.browser();
    let gone = async {
        while visitor.get(&unused).await.status != 404 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, gone).await.expect("it is deleted");
    assert_eq!(visitor.get(&used).await.status, 200);
    assert_eq!(kept(&app).len(), 1);
}

/// A square that does not compress.
fn noise(side: u32) -> Vec<u8> {
    let mut file = Cursor::new(Vec::new());
    let byte = |n: u32| (n.wrapping_mul(2_654_435_761) >> 13) as u8;
    let pixel = |x: u32, y: u32| image::Rgb([0, 1, 2].map(|n| byte((x * side + y) * 3 + n)));
    image::RgbImage::from_fn(side, side, pixel).write_to(&mut file, ImageFormat::Png).unwrap();
    file.into_inner()
}

/// Set by `tests/peers/images`, which runs an S3 server.
const S3: &str = "TEST_S3_URL";

#[actix_web::test]
async fn images_can_be_kept_in_s3() {
    let _catalogue = catalogue::alone().await;
    let Ok(s3) = std::env::var(S3) else {
        eprintln!("SKIPPED images in S3: {S3} is not set");
        return;
    };
    // One that is not there yet.
    let bucket = format!("pictures-{}", std::process::id());
    let (endpoint, name) = (format!("--images-s3-endpoint={s3}"), format!("--images-s3-bucket={bucket}"));
    let flags = [
        ADMINS,
        &endpoint,
        &name,
        "--images-s3-access-key-id=key-of-pictures",
        "--images-s3-secret-access-key=secret-of-pictures",
    ];
    let app = TestApp::start_with(&flags).await;
    let mut ada = app.signed_in(ADA).await;
    ada.upload(ICON, &png(1)).await.expect_problem(503, "unavailable");
    let http = reqwest::Client::new();
    let made = http.put(format!("{s3}/{bucket}")).send().await.unwrap();
    assert!(made.status().is_success(), "{made:?}");
    let objects = async || {
        let list = http.get(format!("{s3}/{bucket}?list-type=2")).send().await.unwrap();
        list.text().await.unwrap()
    };
    let sent = noise(512);
    let path = path(&ada.upload(ICON, &sent).await);
    assert!(!app.directory().join("images").exists());
    assert!(objects().await.contains(&format!("<Key>{}</Key>", &path[1..])));
    let shown = app.browser().get(&path).await;
    assert_eq!((shown.status, shown.header("content-type")), (200, Some("image/png")));
    assert!(shown.bytes().len() > 512 * 1024, "it takes several pieces");
    let decoded = |bytes: &[u8]| image::load_from_memory(bytes).unwrap().to_rgb8();
    assert!(decoded(shown.bytes()) == decoded(&sent));
    let item =
        json!({ "shortname": "test.s3", "name": "In S3", "category": "Test", "iconUrl": format!("{BASE}{path}") });
    assert_eq!(ada.put("/admin/items/700010", &item).await.status, 200);
    assert_eq!(ada.delete("/admin/items/700010").await.status, 200);
    app.browser().get(&path).await.expect_problem(404, "not_found");
    assert!(!objects().await.contains("<Key>"));
}

//! Images, and the forms in which they are uploaded.

use std::io::Cursor;

use image::{ImageFormat, Rgba, RgbaImage};
use reqwest::{
    Method,
    header::{CONTENT_TYPE, ORIGIN},
};

use super::{
    app::FRONTEND,
    browser::{Answer, Browser},
};

const BOUNDARY: &str = "----a-boundary";

/// A picture; another seed, another one.
pub fn picture(format: ImageFormat, seed: u8, width: u32, height: u32) -> Vec<u8> {
    let mut file = Cursor::new(Vec::new());
    let pixel = |x: u32, y: u32| Rgba([x as u8, y as u8, seed, 255 - (x as u8 & 1)]);
    RgbaImage::from_fn(width, height, pixel).write_to(&mut file, format).unwrap();
    file.into_inner()
}

pub fn png(seed: u8) -> Vec<u8> {
    picture(ImageFormat::Png, seed, 32, 32)
}

/// The body of a form whose one part is this file.
pub fn form(name: &str, file: &[u8]) -> Vec<u8> {
    let head = format!(
        "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"../../icon.png\"\r\n\
         Content-Type: image/png\r\n\r\n"
    );
    [head.as_bytes(), file, format!("\r\n--{BOUNDARY}--\r\n").as_bytes()].concat()
}

/// The content type of such a form.
pub fn form_type() -> String {
    format!("multipart/form-data; boundary={BOUNDARY}")
}

impl Browser {
    /// Sends the file as a page of the front end does.
    pub async fn upload(&mut self, path: &str, file: &[u8]) -> Answer {
        self.send_form(path, form("file", file)).await
    }

    pub async fn send_form(&mut self, path: &str, form: Vec<u8>) -> Answer {
        let request = self.request(Method::POST, path).header(ORIGIN, FRONTEND);
        self.send(request.header(CONTENT_TYPE, form_type()).body(form)).await
    }
}

//! Notes of layers and extractors on a request, for its log line and its header fields.

use std::{cell::RefCell, rc::Rc};

use actix_web::{HttpMessage as _, HttpRequest};

use crate::{domain::ids::UserId, net::budgets::LimitReport};

/// The notes of one request.
#[derive(Default)]
pub struct RequestLogFields {
    /// The budgets that it was paid from.
    pub limits: RefCell<Vec<LimitReport>>,
    /// The caller.
    pub user: RefCell<Option<UserId>>,
}

impl RequestLogFields {
    /// The fields of this request; the first call makes them, empty.
    pub fn of(req: &HttpRequest) -> Rc<Self> {
        req.extensions_mut().get_or_insert_with(Rc::<Self>::default).clone()
    }
}

//! A validated query string.

use std::future::{Ready, ready};

use actix_web::{FromRequest, HttpRequest, dev::Payload, web};
use serde::de::DeserializeOwned;

use crate::api::error::ApiError;

/// The query of the request, decoded and validated by its `garde` rules.
pub struct Query<T>(pub T);

impl<T> FromRequest for Query<T>
where
    T: DeserializeOwned + garde::Validate<Context = ()>,
{
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(req: &HttpRequest, _: &mut Payload) -> Self::Future {
        let query = web::Query::<T>::from_query(req.query_string())
            .map_err(|_| ApiError::invalid("", "a query parameter has the wrong type or comes twice"));
        ready(query.and_then(|web::Query(value)| {
            value.validate()?;
            Ok(Self(value))
        }))
    }
}

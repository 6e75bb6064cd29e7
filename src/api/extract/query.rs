//! A validated query string. Parameters that are not known were refused before.

use std::future::{Ready, ready};

use actix_web::{FromRequest, HttpRequest, dev::Payload, web};
use serde::{
    Deserialize,
    de::{DeserializeOwned, Deserializer},
};

use super::json::fault;
use crate::api::answer::error::{ApiError, FieldError};

/// The query of the request, decoded and validated by its `garde` rules.
pub struct Query<T>(pub T);

/// The parsed query, or the parameter that is wrong.
struct Read<T>(Result<T, FieldError>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Read<T> {
    fn deserialize<D: Deserializer<'de>>(query: D) -> Result<Self, D::Error> {
        let read = serde_path_to_error::deserialize(query);
        Ok(Self(read.map_err(|error| {
            let text = error.inner().to_string();
            let mut fault = fault(error.path(), &text);
            // All that a parameter can be but text.
            if text.contains("digit") || text.contains("integer") || text.contains("number") {
                "must be a whole number, and not too large".clone_into(&mut fault.message);
            }
            fault
        })))
    }
}

impl<T> FromRequest for Query<T>
where
    T: DeserializeOwned + garde::Validate<Context = ()>,
{
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(req: &HttpRequest, _: &mut Payload) -> Self::Future {
        let query = web::Query::<Read<T>>::from_query(req.query_string())
            .map_err(|_| ApiError::invalid("", "the query cannot be read"));
        ready(query.and_then(|web::Query(Read(read))| {
            let value = read.map_err(|fault| ApiError::Invalid(vec![fault]))?;
            value.validate()?;
            Ok(Self(value))
        }))
    }
}

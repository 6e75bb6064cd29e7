//! Uploaded images: read with care, and kept in a directory or in S3. Which of them are used, `db::images` knows.

use std::{io, ops::Range, path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};
use object_store::{
    Attribute, Attributes, ClientOptions, GetOptions, GetRange, ObjectStore, ObjectStoreExt as _, PutOptions,
    RetryConfig,
    aws::AmazonS3Builder,
    client::{HttpClient, HttpConnector},
    local::LocalFileSystem,
    path::Path,
};
use secrecy::ExposeSecret as _;
use tokio::time::timeout;

use crate::{
    config::{ImageBucket, ImageStorage, create_private_dir, is_writable},
    domain::image_name::ImageName,
    net::neighbour::{Neighbour, RequestOutcome},
};

pub mod picture;

/// Deadline of the storage for one request, with its retries.
const DEADLINE: Duration = Duration::from_secs(10);
const RETRIES: usize = 2;
/// Bytes that are read at once: what a reader has not taken yet is not in memory.
const PIECE: u64 = 256 * 1024;
/// Before the names, in a bucket.
const PREFIX: &str = "images";

/// Failure of a request to the storage. The texts are for the log.
#[derive(Debug, thiserror::Error)]
pub enum ImageStoreError {
    #[error("the directory of images: {0}")]
    Directory(#[from] io::Error),
    #[error("the storage of images: {0}")]
    Storage(#[from] object_store::Error),
    #[error("the storage of images did not answer within {} s", DEADLINE.as_secs())]
    Late,
}

/// Where images are kept; clones share it.
#[derive(Clone)]
pub struct ImageStore {
    objects: Arc<dyn ObjectStore>,
    /// If it is one.
    directory: Option<PathBuf>,
}

/// An image in the storage, opened: its size, and its bytes as they are read.
pub struct KeptImage {
    pub bytes: u64,
    objects: Arc<dyn ObjectStore>,
    path: Path,
    first: Bytes,
}

impl ImageStore {
    /// Opens the storage. Makes the directory, if it is one; does not ask S3 yet.
    pub fn open(storage: &ImageStorage, http: reqwest::Client) -> Result<Self, ImageStoreError> {
        let objects: Arc<dyn ObjectStore> = match storage {
            ImageStorage::Directory(directory) => {
                create_private_dir(directory)?;
                // An upload is answered when it is on disk.
                Arc::new(LocalFileSystem::new_with_prefix(directory)?.with_fsync(true))
            }
            ImageStorage::S3(bucket) => Arc::new(s3(bucket, http)?),
        };
        let directory = match storage {
            ImageStorage::Directory(directory) => Some(directory.clone()),
            ImageStorage::S3(_) => None,
        };
        Ok(Self { objects, directory })
    }

    /// Reason for which its directory takes no files, if it is one and takes none. Changes nothing. Blocks.
    pub fn fault(&self) -> Option<String> {
        Self::fault_of(self.directory.as_ref()?)
    }

    /// As `fault`, for a directory of the settings. Blocks.
    pub fn fault_of(directory: &std::path::Path) -> Option<String> {
        is_writable(&directory.join(PREFIX)).err()
    }

    /// Keeps an image. One of this name has these bytes.
    pub async fn put(&self, name: &ImageName, image: Bytes) -> Result<(), ImageStoreError> {
        let mut attributes = Attributes::new();
        attributes.insert(Attribute::ContentType, name.format().media_type().into());
        let path = path(name);
        // A directory keeps no attributes, and says so.
        let typed = PutOptions { attributes, ..PutOptions::default() };
        let put = async {
            match self.objects.put_opts(&path, image.clone().into(), typed).await {
                Err(object_store::Error::NotImplemented { .. }) => self.objects.put(&path, image.into()).await,
                done => done,
            }
        };
        in_time(put).await.map(drop)
    }

    /// Writes something small and deletes it again.
    pub async fn try_out(&self) -> Result<(), ImageStoreError> {
        let path = Path::from_iter([PREFIX, "tried-out"]);
        in_time(self.objects.put(&path, Bytes::from_static(b"companion doctor").into())).await?;
        in_time(self.objects.delete(&path)).await
    }

    /// The image; `None` if there is none of this name.
    pub async fn get(&self, name: &ImageName) -> Result<Option<KeptImage>, ImageStoreError> {
        let path = path(name);
        let read = async {
            let options = GetOptions { range: Some(GetRange::Bounded(0..PIECE)), ..GetOptions::default() };
            let found = self.objects.get_opts(&path, options).await?;
            Ok((found.meta.size, found.bytes().await?))
        };
        match in_time(read).await {
            Ok((bytes, first)) => Ok(Some(KeptImage { bytes, objects: self.objects.clone(), path, first })),
            Err(ImageStoreError::Storage(object_store::Error::NotFound { .. })) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Deletes the image, if there is one.
    pub async fn delete(&self, name: &ImageName) -> Result<(), ImageStoreError> {
        let path = path(name);
        match in_time(self.objects.delete(&path)).await {
            Err(ImageStoreError::Storage(object_store::Error::NotFound { .. })) => Ok(()),
            done => done,
        }
    }
}

impl KeptImage {
    /// The image, piece by piece, as it is taken.
    pub fn into_stream(self) -> impl Stream<Item = Result<Bytes, ImageStoreError>> {
        let Self { bytes, objects, path, first } = self;
        let begun = first.len() as u64;
        let rest = stream::try_unfold(begun, move |at| {
            let (objects, path) = (objects.clone(), path.clone());
            async move {
                if at >= bytes {
                    return Ok(None);
                }
                let piece: Range<u64> = at..bytes.min(at + PIECE);
                let read = in_time(objects.get_range(&path, piece)).await?;
                // Never an endless stream of nothing.
                let next = at + (read.len() as u64).max(1);
                Ok(Some((read, next)))
            }
        });
        stream::iter([Ok(first)]).chain(rest)
    }
}

/// The file of an image in the directory of images.
pub fn file_in(directory: &std::path::Path, name: &ImageName) -> PathBuf {
    directory.join(path(name).as_ref())
}

fn path(name: &ImageName) -> Path {
    Path::from_iter([PREFIX, name.as_str()])
}

async fn in_time<T>(asked: impl Future<Output = object_store::Result<T>>) -> Result<T, ImageStoreError> {
    use object_store::Error as Fault;
    let done = timeout(DEADLINE, asked).await;
    Neighbour::Images.count(match &done {
        Ok(Ok(_) | Err(Fault::NotFound { .. } | Fault::NotImplemented { .. })) => RequestOutcome::Answered,
        Ok(Err(Fault::PermissionDenied { .. } | Fault::Unauthenticated { .. })) => RequestOutcome::Refused,
        Ok(Err(_)) | Err(_) => RequestOutcome::Failed,
    });
    done.map_err(|_| ImageStoreError::Late)?.map_err(ImageStoreError::from)
}

/// The bucket itself.
pub fn s3(bucket: &ImageBucket, http: reqwest::Client) -> object_store::Result<impl ObjectStore + use<>> {
    let retry = RetryConfig { max_retries: RETRIES, retry_timeout: DEADLINE, ..RetryConfig::default() };
    let mut builder = AmazonS3Builder::new()
        .with_bucket_name(&bucket.name)
        .with_region(&bucket.region)
        .with_access_key_id(&bucket.access_key_id)
        .with_secret_access_key(bucket.secret_access_key.expose_secret())
        .with_retry(retry)
        .with_http_connector(SharedHttp(http));
    if let Some(endpoint) = &bucket.endpoint {
        // Plain text was refused with the settings, where it is.
        builder = builder.with_endpoint(endpoint.to_string()).with_allow_http(true);
    }
    builder.build()
}

/// The service's client: one place for trust and deadlines.
#[derive(Debug)]
struct SharedHttp(reqwest::Client);

impl HttpConnector for SharedHttp {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.0.clone()))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::TryStreamExt as _;

    use super::*;
    use crate::domain::image_name::UploadFormat;

    async fn read(store: &ImageStore, name: &ImageName) -> Option<Vec<u8>> {
        let kept = store.get(name).await.unwrap()?;
        let bytes = kept.bytes;
        let whole = kept.into_stream().try_collect::<Vec<Bytes>>().await.unwrap().concat();
        assert_eq!(whole.len() as u64, bytes);
        Some(whole)
    }

    #[tokio::test]
    async fn a_directory_keeps_images_of_any_size_until_they_are_deleted() {
        crate::crypto::install();
        let directory = tempfile::tempdir().unwrap();
        let storage = ImageStorage::Directory(directory.path().join("new/images"));
        let store = ImageStore::open(&storage, reqwest::Client::new()).unwrap();
        for (digit, length) in [("a", 1), ("b", PIECE as usize), ("c", 2 * PIECE as usize + 9)] {
            let name = ImageName::new(&digit.repeat(64), UploadFormat::WebP);
            let image: Vec<u8> = (0..length).map(|n| n as u8).collect();
            assert_eq!(read(&store, &name).await, None);
            for _ in 0..2 {
                store.put(&name, image.clone().into()).await.unwrap();
            }
            assert!(read(&store, &name).await == Some(image), "{length} bytes");
            for _ in 0..2 {
                store.delete(&name).await.unwrap();
            }
            assert_eq!(read(&store, &name).await, None);
        }
        assert_eq!(store.fault(), None);
        let images = directory.path().join("new/images");
        std::fs::remove_dir_all(&images).unwrap();
        std::fs::write(&images, "").unwrap();
        assert!(store.fault().is_some_and(|fault| fault.contains("which is no directory")), "{:?}", store.fault());
    }
}

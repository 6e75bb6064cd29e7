//! The pages, as they are served under the public URLs of this service.

use std::{
    io,
    path::PathBuf,
    sync::{Arc, LazyLock},
};

use bytes::Bytes;

use crate::{
    config::PublicUrls,
    crypto::digest::sha256_hex,
    web::{
        embedded::FILES,
        tree::{Tree, TreeFile},
    },
};

/// The tree within the program. One for all services of the process.
static EMBEDDED: LazyLock<Arc<Tree>> =
    LazyLock::new(|| Arc::new(Tree::new(FILES.iter().map(|(path, bytes)| (*path, Bytes::from_static(bytes))), 9)));

/// A page, by the name of its HTML file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageName {
    Dashboard,
    Overlay,
    /// For browsers that are not signed in.
    Landing,
    /// As `Landing`, for a user who did not sign in after all.
    Cancelled,
}

impl PageName {
    fn word(self) -> &'static str {
        match self {
            Self::Dashboard => "dashboard",
            Self::Overlay => "overlay",
            Self::Landing | Self::Cancelled => "landing",
        }
    }

    /// A line of HTML that the page says of how one came to it.
    fn notice(self) -> &'static str {
        match self {
            Self::Cancelled => r#"<p role="status">You did not sign in. Nothing was changed.</p>"#,
            Self::Dashboard | Self::Overlay | Self::Landing => "",
        }
    }
}

/// Lines of the dashboard that ask for what it needs first; `{base}` is the path of the API.
const ASKED_FIRST: &str = r#"<link rel="preload" as="fetch" crossorigin href="{base}/client-config">
<link rel="preload" as="fetch" crossorigin href="{base}/me">
"#;

/// The file of the service worker.
const WORKER: &str = "sw.js";

/// The `Content-Security-Policy` of the service worker: it calls this service, and shows its icons.
pub const WORKER_POLICY: &str = "default-src 'none'; connect-src 'self'; img-src 'self'; \
     require-trusted-types-for 'script'; trusted-types 'none'";

/// A page with its entity tag.
#[derive(Debug)]
pub struct WebPage {
    /// Without quotes.
    pub tag: String,
    pub file: TreeFile,
}

/// The pages with all that they load.
#[derive(Debug)]
pub struct LoadedPages {
    pub tree: Arc<Tree>,
    /// The service worker, which shows alarms while no page is open.
    pub worker: WebPage,
    dashboard: WebPage,
    overlay: WebPage,
    landing: WebPage,
    cancelled: WebPage,
    /// The lines of the dashboard that answers take the place of.
    asked_first: String,
}

impl LoadedPages {
    /// Pages of this tree, for a service that browsers reach below `base`: the path of its public URL, without a slash
    /// at its end.
    fn new(tree: Arc<Tree>, base: &str) -> Self {
        let page = |name| WebPage::new(&tree, name, base);
        let worker = WebPage::worker(&tree, base);
        let [dashboard, overlay] = [PageName::Dashboard, PageName::Overlay].map(page);
        let [landing, cancelled] = [PageName::Landing, PageName::Cancelled].map(page);
        let asked_first = ASKED_FIRST.replace("{base}", base);
        Self { worker, dashboard, overlay, landing, cancelled, asked_first, tree }
    }

    /// The dashboard with the answers to what it asks first, as JSON.
    pub fn dashboard_with(&self, json: &str) -> TreeFile {
        // Data within HTML ends at the next `</script`.
        let data =
            format!("<script type=\"application/json\" id=\"answers\">{}</script>\n", json.replace('<', "\\u003c"));
        let html = String::from_utf8_lossy(&self.dashboard.file.plain).replace(&self.asked_first, &data);
        TreeFile::new("page.html", html, 1)
    }

    /// The page of this name.
    pub fn page(&self, name: PageName) -> &WebPage {
        match name {
            PageName::Dashboard => &self.dashboard,
            PageName::Overlay => &self.overlay,
            PageName::Landing => &self.landing,
            PageName::Cancelled => &self.cancelled,
        }
    }
}

impl WebPage {
    /// Puts into the template the root of the tree, the base of the API, and the modules to fetch at once.
    fn new(tree: &Tree, name: PageName, base: &str) -> Self {
        let (name, notice) = (name.word(), name.notice());
        let template = tree.file(&format!("{name}.html")).map(|file| file.plain.clone()).unwrap_or_default();
        let root = format!("{base}/_/{}", tree.hash);
        let preloads: String = tree
            .needed_by(&format!("{name}/main.js"))
            .iter()
            .map(|path| format!("<link rel=\"modulepreload\" href=\"{root}/{path}\">\n"))
            .collect();
        let html = String::from_utf8_lossy(&template)
            .replace("{asked-first}\n", ASKED_FIRST)
            .replace("{root}", &root)
            .replace("{base}", base)
            .replace("{hash}", &tree.hash)
            .replace("{notice}", notice)
            .replace("{preloads}\n", &preloads);
        Self::of("page.html", html)
    }

    /// Puts the root of the tree into the worker, for the icons of its notifications.
    fn worker(tree: &Tree, base: &str) -> Self {
        let template = tree.file(WORKER).map(|file| file.plain.clone()).unwrap_or_default();
        let root = format!("{base}/_/{}", tree.hash);
        Self::of(WORKER, String::from_utf8_lossy(&template).replace("{root}", &root))
    }

    fn of(path: &str, text: String) -> Self {
        let tag = sha256_hex(text.as_bytes())[..32].to_owned();
        Self { tag, file: TreeFile::new(path, text, 9) }
    }
}

/// Source of the pages of this service, and the rules for the browsers that show them.
#[derive(Debug)]
pub struct BundledPages {
    /// The `Content-Security-Policy` of the dashboard, and of all other pages.
    dashboard_policy: String,
    policy: String,
    /// False where FRONTEND_URL names another front end.
    pub has_dashboard: bool,
    base: String,
    /// `None`: they are read from `directory` each time.
    loaded: Option<Arc<LoadedPages>>,
    directory: PathBuf,
}

impl BundledPages {
    /// Pages of the program, or of this directory.
    pub fn new(urls: &PublicUrls, directory: Option<PathBuf>) -> Self {
        let base = urls.base.path().trim_end_matches('/').to_owned();
        let loaded = directory.is_none().then(|| Arc::new(LoadedPages::new(EMBEDDED.clone(), &base)));
        let (has_dashboard, directory) = (urls.frontend == urls.base, directory.unwrap_or_default());
        let [dashboard_policy, policy] = [Some(WORKER_TYPES), None].map(|types| policy(urls, types));
        Self { dashboard_policy, policy, has_dashboard, base, loaded, directory }
    }

    /// The `Content-Security-Policy` of a page.
    pub fn policy(&self, name: PageName) -> &str {
        match name {
            PageName::Dashboard => &self.dashboard_policy,
            PageName::Overlay | PageName::Landing | PageName::Cancelled => &self.policy,
        }
    }

    /// The hash of the embedded files; `None` while they are read from a directory.
    pub fn hash(&self) -> Option<&str> {
        self.loaded.as_ref().map(|loaded| loaded.tree.hash.as_str())
    }

    /// The pages; reads files if they come from a directory, on this thread.
    pub fn load(&self) -> io::Result<Arc<LoadedPages>> {
        match &self.loaded {
            Some(loaded) => Ok(loaded.clone()),
            None => Ok(Arc::new(LoadedPages::new(Arc::new(Tree::read(&self.directory)?), &self.base))),
        }
    }

    /// True if loading reads files.
    pub fn reads_files(&self) -> bool {
        self.loaded.is_none()
    }
}

/// The one policy of Trusted Types that the dashboard has (`src/web/files/push.js`): it makes the URL of the service worker,
/// a constant, for which browsers take no text.
const WORKER_TYPES: &str = "service-worker";

/// Scripts, styles and data of this service, its relay, and nothing else; no text becomes a script but what the policy of
/// this name makes.
fn policy(urls: &PublicUrls, types: Option<&str>) -> String {
    let types = types.unwrap_or("'none'");
    let relay = urls.relay.as_ref().map(|url| format!(" {}", url.origin().ascii_serialization())).unwrap_or_default();
    format!(
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'{relay}; \
         manifest-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; \
         require-trusted-types-for 'script'; trusted-types {types}"
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use url::Url;

    use super::*;

    fn urls([base, frontend, relay]: [&str; 3]) -> PublicUrls {
        let url = |text: &str| Url::parse(text).unwrap().into();
        PublicUrls { base: url(base), frontend: url(frontend), admin: url(frontend), relay: Some(url(relay)) }
    }

    const BASE: &str = "https://api.test/v2";

    #[test]
    fn a_front_end_of_its_own_switches_the_dashboard_off() {
        let relay = "wss://relay.test/live";
        assert!(!BundledPages::new(&urls([BASE, "https://app.test", relay]), None).has_dashboard);
        let pages = BundledPages::new(&urls([BASE, BASE, relay]), None);
        assert!(pages.has_dashboard);
        for name in [PageName::Dashboard, PageName::Overlay, PageName::Landing, PageName::Cancelled] {
            let policy = pages.policy(name);
            assert!(policy.contains("connect-src 'self' wss://relay.test;"), "{policy}");
            let types = if name == PageName::Dashboard { "service-worker" } else { "'none'" };
            let ending = format!("; require-trusted-types-for 'script'; trusted-types {types}");
            assert!(policy.ends_with(&ending), "{name:?}: {policy}");
        }
    }

    #[test]
    fn a_page_names_its_modules_below_the_hash_and_leaves_no_placeholder() {
        let pages = BundledPages::new(&urls([BASE, BASE, "wss://relay.test"]), None);
        let loaded = pages.load().unwrap();
        for name in [PageName::Landing, PageName::Cancelled] {
            let html = String::from_utf8(loaded.page(name).file.plain.to_vec()).unwrap();
            assert!(!html.contains('{') && !html.contains("<script"), "{html}");
            assert!(html.contains("href=\"/v2/auth/platform\""), "{html}");
            assert_eq!(html.contains("You did not sign in."), name == PageName::Cancelled);
        }
        for name in [PageName::Dashboard, PageName::Overlay] {
            let html = String::from_utf8(loaded.page(name).file.plain.to_vec()).unwrap();
            let entry = format!("{}/main.js", name.word());
            assert!(html.contains(&format!("src=\"/v2/_/{}/{entry}\"", loaded.tree.hash)), "{html}");
            assert!(!html.contains('{'), "{html}");
            for path in html.split("href=\"/v2/_/").skip(1) {
                let path = path.split('"').next().and_then(|path| path.split_once('/')).unwrap().1;
                assert!(loaded.tree.file(path).is_some(), "{path}");
            }
            let needed = loaded.tree.needed_by(&entry);
            assert!(!needed.iter().any(|path| path == WORKER), "a worker is no module of a page");
            assert!((1..=24).contains(&needed.len()), "{name:?} loads {} modules at once", needed.len());
        }
    }

    #[test]
    fn the_worker_names_icons_that_are_there() {
        let pages = BundledPages::new(&urls([BASE, BASE, "wss://relay.test"]), None);
        let loaded = pages.load().unwrap();
        let text = String::from_utf8(loaded.worker.file.plain.to_vec()).unwrap();
        assert!(text.contains(&format!("\"/v2/_/{}\"", loaded.tree.hash)) && !text.contains("{root}"), "{text}");
        let icons: Vec<&str> = text.split("${ROOT}/").skip(1).filter_map(|rest| rest.split('`').next()).collect();
        assert!(!icons.is_empty() && icons.iter().all(|path| loaded.tree.file(path).is_some()), "{icons:?}");
        let manifest = &loaded.tree.file("companion.webmanifest").unwrap().plain;
        let manifest: serde_json::Value = serde_json::from_slice(manifest).unwrap();
        // Below the hash: the page is two folders above.
        assert_eq!((&manifest["start_url"], &manifest["display"]), (&"../../".into(), &"standalone".into()));
        let icons = manifest["icons"].as_array().unwrap();
        assert!(icons.iter().all(|icon| loaded.tree.file(icon["src"].as_str().unwrap()).is_some()), "{icons:?}");
    }

    /// Bytes that the page of the dashboard and its files may take, compressed and with headers: the frame, which is all
    /// that an alarm needs, and with the map, which comes next. With the API's answers, a first visit takes some ten
    /// thousand more, and the picture of the map.
    const FIRST_LOAD: usize = 66_000;
    const WITH_MAP: usize = 98_000;
    /// More than the headers of a file (`tests/spec/pages.rs`).
    const HEADERS: usize = 550;

    #[test]
    fn the_first_load_is_small() {
        let pages = BundledPages::new(&urls([BASE, BASE, "wss://relay.test"]), None);
        let loaded = pages.load().unwrap();
        let size = |file: &TreeFile| file.gzip.as_ref().unwrap_or(&file.plain).len();
        let html = &loaded.page(PageName::Dashboard).file;
        let linked = String::from_utf8_lossy(&html.plain).into_owned();
        let linked = linked.split(['"']).filter_map(|text| text.split_once("/_/")?.1.split_once('/'));
        let frame: BTreeSet<String> = linked.map(|(_, path)| path.to_owned()).collect();
        let bytes = |files: &BTreeSet<String>| {
            let files = files.iter().filter_map(|path| loaded.tree.file(path));
            size(html) + files.map(|file| size(file) + HEADERS).sum::<usize>()
        };
        assert!((45_000..FIRST_LOAD).contains(&bytes(&frame)), "{} bytes", bytes(&frame));
        let mut all = frame;
        all.extend(loaded.tree.needed_by("map/map.js"));
        all.insert("map/map.js".to_owned());
        assert!((70_000..WITH_MAP).contains(&bytes(&all)), "{} bytes", bytes(&all));
    }
}

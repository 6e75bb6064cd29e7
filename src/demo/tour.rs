//! Requests to try in a demo.

use std::io::{self, Write};

use crate::simulator::{self, world::TURNING_CAMERA};

/// Parts of the requests that differ from demo to demo.
pub struct TourFacts<'a> {
    pub api_url: &'a str,
    pub sign_in_url: &'a str,
    /// `rp_sess=…` of the demo user.
    pub cookie: &'a str,
    /// Id of the paired server.
    pub server: &'a str,
    /// Device id of a switch.
    pub switch: Option<&'a str>,
    /// A page on which the demo user pays.
    pub checkout_url: Option<&'a str>,
    /// Where the simulated chat platform takes commands.
    pub chat_url: String,
    /// The simulated phone, which also receives signed webhooks.
    pub phone_url: String,
    /// The file with these facts, for scripts.
    pub path: String,
}

/// Prints them, ready to be pasted.
pub fn print(out: &mut impl Write, facts: &TourFacts<'_>) -> io::Result<()> {
    let TourFacts { api_url, sign_in_url, cookie, server: id, switch, checkout_url, chat_url, phone_url, path } = facts;
    let program = simulator::program_as_started();
    writeln!(out, "  Sign in    {sign_in_url}   (in a browser, with one click)")?;
    if let Some(url) = checkout_url {
        writeln!(out, "  Subscribe  {url}   (to OPERATOR, with one click on \"Pay\")")?;
    }
    writeln!(out)?;
    writeln!(out, "In another terminal, in this directory:\n")?;
    writeln!(out, "  Watch the live state")?;
    writeln!(out, "    {program} watch {path}")?;
    if let Some(switch) = switch {
        writeln!(out, "  Turn a switch, and see its new value arrive as a patch")?;
        writeln!(out, "    {program} watch {path} --toggle {switch}")?;
    }
    writeln!(out, "  Call the API")?;
    writeln!(out, "    curl -s -H 'Cookie: {cookie}' {api_url}/me")?;
    writeln!(out, "    curl -s -H 'Cookie: {cookie}' {api_url}/paired-servers")?;
    writeln!(
        out,
        "  Open the portal after you have subscribed, to change, cancel or fail a payment; /me says why you have a tier"
    )?;
    writeln!(out, "    curl -s -X POST -H 'Cookie: {cookie}' {api_url}/billing/portal")?;
    let json = "Content-Type: application/json";
    writeln!(out, "  Track a player who comes and goes every few minutes, and ask for the names they used")?;
    writeln!(
        out,
        "    curl -s -H 'Cookie: {cookie}' -H '{json}' -d '{{\"trackerName\":\"Vex\"}}' {api_url}/intel/{id}/tracking"
    )?;
    writeln!(out, "    curl -s -H 'Cookie: {cookie}' '{api_url}/intel/{id}/aliases?name=Vex'")?;
    writeln!(out, "  Leave a note on the map, and see it arrive as a patch")?;
    writeln!(
        out,
        "    curl -s -H 'Cookie: {cookie}' -H '{json}' -d '{{\"x\":900,\"y\":1200,\"category\":\"stash\",\"label\":\"Boat base\"}}' {api_url}/intel/{id}/map-notes"
    )?;
    writeln!(out, "  See what the shops sell, and which of them are suspicious")?;
    writeln!(out, "    curl -s -H 'Cookie: {cookie}' {api_url}/paired-servers/{id}/shops")?;
    writeln!(out, "    curl -s -H 'Cookie: {cookie}' {api_url}/intel/{id}/shops/scan")?;
    writeln!(out, "  Say something in the team chat, and get the picture of the map")?;
    writeln!(
        out,
        "    curl -s -H 'Cookie: {cookie}' -H '{json}' -d '{{\"text\":\"hello\"}}' {api_url}/paired-servers/{id}/chat"
    )?;
    writeln!(out, "    curl -s -H 'Cookie: {cookie}' -o map.jpg '{api_url}/paired-servers/{id}/map/image?size=1024'")?;
    writeln!(out, "  Register the support bot's commands as an admin, and give it some as the chat platform does")?;
    writeln!(out, "    curl -s -X POST -H 'Cookie: {cookie}' {api_url}/admin/chat/register-commands")?;
    let give = format!("{chat_url}/give");
    writeln!(
        out,
        "    curl -s --json '{{\"command\":\"craft\",\"options\":{{\"item\":\"gunpowder\",\"amount\":50}}}}' {give}"
    )?;
    writeln!(out, "    curl -s --json '{{\"command\":\"raid\",\"options\":{{\"target\":\"garage door\"}}}}' {give}")?;
    writeln!(out, "  Link the account there with a code of the bot, and ask it for prices on your servers")?;
    writeln!(out, "    curl -s --json '{{\"command\":\"link\"}}' {give}")?;
    writeln!(out, "    curl -s -H 'Cookie: {cookie}' --json '{{\"code\":\"THE CODE\"}}' {api_url}/chat/link")?;
    writeln!(out, "    curl -s --json '{{\"command\":\"price\",\"options\":{{\"item\":\"wood\"}}}}' {give}")?;
    writeln!(
        out,
        "  See on the phone that a program of yours takes the signed webhook, and refuses one that it cannot check"
    )?;
    writeln!(out, "    curl -s -X POST -H 'Cookie: {cookie}' {api_url}/paired-servers/{id}/drill")?;
    writeln!(out, "    curl -s --json '{{\"type\":\"raid.opened\"}}' {phone_url}hook")?;
    let devices = format!("{api_url}/paired-servers/{id}/devices");
    writeln!(out, "  Add a camera of the base, and take a picture through it")?;
    writeln!(out, "    curl -s -H 'Cookie: {cookie}' --json '{{\"cameraId\":\"{TURNING_CAMERA}\"}}' {devices}")?;
    writeln!(out, "    curl -s -H 'Cookie: {cookie}' -o camera.jpg {devices}/{TURNING_CAMERA}/camera-frame")?;
    writeln!(out, "  Read how all of this works: the wiki, and the stores that bots read")?;
    writeln!(out, "    curl -s '{api_url}/wiki/page?slug=welcome'   (all pages: {api_url}/wiki/tree)")?;
    writeln!(out, "    curl -s {api_url}/store/raid   (also faq, crafting, messages)")?;
    writeln!(out, "  See the members as an admin, and what admins did")?;
    writeln!(out, "    curl -s -H 'Cookie: {cookie}' {api_url}/admin/users/overview")?;
    writeln!(
        out,
        "    curl -s -H 'Cookie: {cookie}' --json '{{\"platformId\":\"76561198000000042\",\"tier\":\"SCOUT\"}}' {api_url}/admin/beta-testers"
    )?;
    writeln!(out, "    curl -s -H 'Cookie: {cookie}' {api_url}/admin/audit")?;
    writeln!(
        out,
        "  Get a token for your own WebSocket client, which then sends {{\"type\":\"subscribe\",\"serverId\":\"{id}\"}}"
    )?;
    writeln!(out, "    curl -s -X POST -H 'Cookie: {cookie}' {api_url}/relay/token")?;
    writeln!(out, "\nAddresses and the cookie are also in {path}, for scripts.\n")?;
    Ok(())
}

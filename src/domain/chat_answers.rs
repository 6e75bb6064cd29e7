//! Answers of the support bot, from the question, the stores ([`stores`](crate::domain::stores)) and the catalogue of
//! items. Admins write the stores: whatever they hold, there is an answer.
//!
//! Text from outside is escaped, so that a shop cannot be named like a link. Answers of the FAQ are not.

use std::{cmp::Reverse, collections::BTreeMap, slice, sync::Arc};

use serde_json::Value;

use crate::domain::{
    bot::{bot_messages::BotMessages, bot_reply::BotReply},
    item_search,
    items::{Catalogue, CatalogueItem, SCRAP},
    plain_text::plain_text,
    shop::{Offer, Shop},
};

/// Characters of a name.
const LONGEST_NAME: usize = 80;
/// Characters of a line that answers a question of the team's chat: a team has many names.
const LONGEST_LINE: usize = 500;
/// Found items among which one with a recipe is looked for.
const CANDIDATES: usize = 20;
/// Offers shown of each server: the cheapest for each currency.
const OFFERS: usize = 3;

/// The ingredients of an item: for at least this many pieces, or for one crafting.
pub fn craft(
    messages: &BotMessages,
    crafting: &Value,
    catalogue: &Catalogue,
    asked: &str,
    pieces: Option<u32>,
) -> BotReply {
    let Some((shortname, recipe)) = recipe(crafting, catalogue, asked) else {
        return BotReply::private(messages.say("craft.unknown", &[("item", &shown(asked))]));
    };
    let made = recipe["makes"].as_u64().filter(|made| *made > 0);
    let times = u64::from(pieces.unwrap_or(1)).div_ceil(made.unwrap_or(1));
    let name = shown(recipe["name"].as_str().unwrap_or(shortname));
    let item = match (made, times) {
        (None, 1) | (Some(1), 1) => name,
        (None, times) => format!("{name}, crafted {times} times"),
        (Some(made), times) => format!("{} {name}", made.saturating_mul(times)),
    };
    let ingredients = list(&recipe["ingredients"]).iter().filter_map(|ingredient| {
        let name = ingredient["name"].as_str().or(ingredient["shortname"].as_str())?;
        Some(format!("{} {}", ingredient["quantity"].as_u64()?.saturating_mul(times), shown(name)))
    });
    let ingredients = ingredients.collect::<Vec<_>>().join(", ");
    BotReply::shared(messages.say("craft.answer", &[("item", &format!("**{item}**")), ("ingredients", &ingredients)]))
}

/// The recipe of that very name or short name; else that of the item that fits best among those that have one, unless
/// an item is meant exactly that has none.
fn recipe<'a>(crafting: &'a Value, catalogue: &Catalogue, asked: &str) -> Option<(&'a str, &'a Value)> {
    let recipes = crafting["recipes"].as_object()?;
    let is_asked = |name: &str| name.to_lowercase() == asked.to_lowercase();
    let named =
        |(shortname, recipe): &(&String, &Value)| is_asked(shortname) || recipe["name"].as_str().is_some_and(is_asked);
    let found = item_search::search(&catalogue.all(), asked, CANDIDATES);
    let fits = || {
        let exact = found.first().filter(|item| is_asked(&item.name) || is_asked(&item.shortname));
        let candidates = exact.map_or(&found[..], slice::from_ref);
        candidates.iter().find_map(|item| recipes.get_key_value(&*item.shortname))
    };
    let (shortname, recipe) = recipes.iter().find(named).or_else(fits)?;
    Some((shortname, recipe))
}

/// The tools needed to get through a wall or door, or through the given number of them.
pub fn raid(messages: &BotMessages, raid: &Value, asked: &str, amount: Option<u32>) -> BotReply {
    let name = |target: &Value| target["name"].as_str().map(str::to_owned);
    let targets: Vec<(String, &Value)> =
        list(&raid["targets"]).iter().filter_map(|target| Some((name(target)?, target))).collect();
    let Some((name, target)) = best(&targets, asked, |(name, _)| vec![name]) else {
        let unknown = messages.say("raidCost.unknown", &[("target", &shown(asked))]);
        let known = targets.iter().map(|(name, _)| shown(name)).collect::<Vec<_>>().join(", ");
        return BotReply::private(format!("{unknown}\n{known}"));
    };
    let times = u64::from(amount.unwrap_or(1));
    let ways = list(&target["ways"]).iter().filter_map(|way| {
        let tool = way["name"].as_str().or(way["shortname"].as_str())?;
        let tools = format!("{} {}", way["quantity"].as_u64()?.saturating_mul(times), shown(tool));
        Some(match way["sulfur"].as_u64() {
            Some(sulfur) => format!("{tools} ({} sulfur)", sulfur.saturating_mul(times)),
            None => tools,
        })
    });
    let ways = ways.collect::<Vec<_>>().join(", or ");
    let target = if times > 1 { format!("**{times} × {}**", shown(name)) } else { format!("**{}**", shown(name)) };
    BotReply::shared(messages.say("raidCost.answer", &[("target", &target), ("ways", &ways)]))
}

/// The answer to a question, or all questions.
pub fn faq(messages: &BotMessages, faq: &Value, asked: Option<&str>) -> BotReply {
    let text = |entry: &Value, field: &str| entry[field].as_str().map(str::trim).unwrap_or_default().to_owned();
    let entries =
        list(&faq["entries"]).iter().map(|entry| ["id", "question", "answer"].map(|field| text(entry, field)));
    let entries: Vec<[String; 3]> =
        entries.filter(|[_, question, answer]| !question.is_empty() && !answer.is_empty()).collect();
    let intro = match asked {
        None => messages.say("faq.list", &[]),
        Some(asked) => match best(&entries, asked, |[id, question, _]| vec![question, id]) {
            Some([_, question, answer]) => return BotReply::shared(format!("**{}**\n{answer}", shown(question))),
            None => messages.say("faq.unknown", &[("question", &shown(asked))]),
        },
    };
    let questions = entries.iter().map(|[_, question, _]| format!("\n- {}", shown(question)));
    BotReply::private(questions.fold(intro, |text, question| text + &question))
}

/// The known facts of an item.
pub fn item(messages: &BotMessages, catalogue: &Catalogue, asked: &str) -> BotReply {
    let Some(item) = find_item(catalogue, asked) else {
        return BotReply::private(messages.say("item.unknown", &[("item", &shown(asked))]));
    };
    let mut facts = Vec::new();
    if !item.category.is_empty() {
        facts.push(shown(&item.category));
    }
    facts.extend(item.stack_size.map(|pieces| format!("a slot holds {pieces}")));
    facts.push(match item.ingredients.is_empty() {
        true => "cannot be crafted".to_owned(),
        false => "can be crafted".to_owned(),
    });
    let places = [
        ("item", &*format!("**{}**", shown(&item.name))),
        ("shortname", &*shown(&item.shortname)),
        ("id", &*item.id.to_string()),
        ("facts", &*facts.join(", ")),
    ];
    BotReply::shared(messages.say("item.answer", &places))
}

/// The item that best fits the question.
fn find_item(catalogue: &Catalogue, asked: &str) -> Option<Arc<CatalogueItem>> {
    item_search::search(&catalogue.all(), asked, 1).into_iter().next()
}

/// The cheapest offers of an item that are in stock, by server, each with its name and the shops that are there.
pub fn price(messages: &BotMessages, catalogue: &Catalogue, asked: &str, servers: &[(String, Vec<Shop>)]) -> BotReply {
    let Some(item) = find_item(catalogue, asked) else {
        return BotReply::private(messages.say("item.unknown", &[("item", &shown(asked))]));
    };
    if servers.is_empty() {
        return BotReply::private(messages.say("chat.noServers", &[]));
    }
    let item_name = shown(&item.name);
    let lines = servers.iter().flat_map(|(server, shops)| {
        let server = shown(server);
        let offers = cheapest(shops, item.id);
        let none = offers.is_empty().then(|| messages.say("price.none", &[("item", &item_name), ("server", &server)]));
        let offered = offers.into_iter().map(|(shop, offer)| {
            let places = [
                ("item", if offer.key.worn { format!("{item_name} (worn)") } else { item_name.clone() }),
                ("server", server.clone()),
                ("quantity", offer.price.quantity.to_string()),
                ("price", offer.price.cost.to_string()),
                ("currency", shown(&catalogue.in_words(offer.key.currency_id, offer.key.currency_is_blueprint))),
                ("shop", shown(shop.shown_name())),
                ("grid", shown(&shop.grid)),
            ];
            messages.say("price.answer", &places.each_ref().map(|(name, value)| (*name, value.as_str())))
        });
        none.into_iter().chain(offered.collect::<Vec<_>>())
    });
    BotReply::private(lines.collect::<Vec<_>>().join("\n"))
}

/// For each currency the offer that is cheapest by the piece: for scrap first, then the currencies of most offers.
fn cheapest(shops: &[Shop], item: i32) -> Vec<(&Shop, &Offer)> {
    let mut by_currency: BTreeMap<_, Vec<(&Shop, &Offer)>> = BTreeMap::new();
    for shop in shops {
        let offers = shop.offers.iter().filter(|offer| offer.in_stock > 0);
        for offer in offers.filter(|offer| offer.key.item_id == item && !offer.key.item_is_blueprint) {
            by_currency
                .entry((offer.key.worn, offer.key.currency_id, offer.key.currency_is_blueprint))
                .or_default()
                .push((shop, offer));
        }
    }
    let mut groups: Vec<_> = by_currency.into_iter().collect();
    groups.sort_by_key(|((worn, currency, is_blueprint), offers)| {
        (*worn, *currency != SCRAP, *is_blueprint, Reverse(offers.len()))
    });
    let cheapest = groups.into_iter().filter_map(|(_, offers)| {
        offers.into_iter().min_by(|(a_shop, a), (b_shop, b)| a.price.by_piece(b.price).then(a_shop.id.cmp(&b_shop.id)))
    });
    cheapest.take(OFFERS).collect()
}

/// The value whose names fit best: an equal name, then one that begins with the question, then the shortest with all
/// words, then the one with most of them.
fn best<'a, T>(all: &'a [T], asked: &str, names: impl Fn(&T) -> Vec<&String>) -> Option<&'a T> {
    let asked = asked.trim().to_lowercase();
    let words: Vec<&str> = asked.split(|c: char| !c.is_alphanumeric()).filter(|word| word.len() > 2).collect();
    let rank = |name: &String| {
        let name = name.to_lowercase();
        let has = words.iter().filter(|word| name.contains(**word)).count();
        let kind = match () {
            () if name == asked => 0,
            () if name.starts_with(&asked) => 1,
            () if name.contains(&asked) || (has == words.len() && has > 0) => 2,
            () if has > 0 => 3,
            () => return None,
        };
        Some((kind, if kind == 3 { Reverse(has) } else { Reverse(0) }, name.len()))
    };
    let ranked = all.iter().filter_map(|one| Some((names(one).into_iter().filter_map(rank).min()?, one)));
    ranked.min_by_key(|(rank, _)| *rank).map(|(_, one)| one)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Text from outside: one line, and none of the platform's marks, mentions and links.
fn shown(text: &str) -> String {
    shown_up_to(LONGEST_NAME, text)
}

/// Text from outside, likewise, of at most this number of characters.
fn shown_up_to(longest: usize, text: &str) -> String {
    let is_mark = |c: char| matches!(c, '\\' | '*' | '_' | '~' | '`' | '|' | '<' | '>' | '#' | '[' | ']' | ':' | '@');
    let escaped = |c: char| is_mark(c).then_some('\\').into_iter().chain([c]);
    plain_text(text, longest).chars().flat_map(escaped).collect()
}

/// Answers of each server's state to a question of the team's chat, with the server's name in front.
pub fn of_servers(messages: &BotMessages, servers: &[(String, Vec<String>)]) -> BotReply {
    if servers.is_empty() {
        return BotReply::private(messages.say("chat.noServers", &[]));
    }
    let lines = servers.iter().map(|(server, lines)| {
        let said = match lines.is_empty() {
            true => messages.say("chat.noState", &[]),
            false => lines.iter().map(|line| shown_up_to(LONGEST_LINE, line)).collect::<Vec<_>>().join("\n"),
        };
        format!("**{}**: {said}", shown(server))
    });
    BotReply::private(lines.collect::<Vec<_>>().join("\n"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::domain::{
        shop::testing::{machine, order, shops},
        stores::StoreName,
    };

    fn shipped(store: StoreName) -> Value {
        serde_json::from_str(store.shipped()).unwrap()
    }

    fn messages() -> BotMessages {
        BotMessages::new(shipped(StoreName::Messages))
    }

    fn crafted(asked: &str, pieces: Option<u32>) -> BotReply {
        craft(&messages(), &shipped(StoreName::Crafting), Catalogue::embedded(), asked, pieces)
    }

    #[test]
    fn a_line_about_a_whole_team_is_shown_whole() {
        let line = format!("online 8/8: {}", ["Marlow AB12"; 8].join(", "));
        let BotReply { text, .. } = of_servers(&messages(), &[("Main".to_owned(), vec![line])]);
        assert!(
            text.starts_with(r"**Main**: online 8/8\: Marlow") && text.matches("Marlow AB12").count() == 8,
            "{text}"
        );
    }

    #[test]
    fn crafting_is_given_for_one_crafting_or_for_more() {
        let ak = crafted("ak", None);
        assert!(ak.text.starts_with("**Assault Rifle**: ") && ak.text.contains("50 High Quality Metal"), "{}", ak.text);
        assert!(!ak.private);
        assert_eq!(crafted("gunpowder", None).text, "**10 Gun Powder**: 30 Charcoal, 20 Sulfur.");
        assert_eq!(crafted("Gun Powder", Some(11)).text, "**20 Gun Powder**: 60 Charcoal, 40 Sulfur.");
        assert!(crafted("ak", Some(3)).text.starts_with("**Assault Rifle, crafted 3 times**: "));
    }

    #[test]
    fn an_item_that_cannot_be_crafted_is_said_to_the_one_who_asked() {
        let unknown = crafted("*[nothing](http://x)*", None);
        assert_eq!(unknown.text, r"I know no way to craft \*\[nothing\](http\://x)\*.");
        assert!(unknown.private);
        assert!(crafted("scrap", None).text.starts_with("I know no way"));
    }

    #[test]
    fn a_store_of_any_form_has_an_answer() {
        let odd = [json!(null), json!([]), json!({ "recipes": 3, "targets": {}, "entries": [3, {}] })];
        for store in odd.iter().chain([&json!({ "recipes": { "x": 3 }, "targets": [{ "name": "x" }], "entries": [] })])
        {
            for reply in [
                craft(&messages(), store, Catalogue::embedded(), "x", None),
                raid(&messages(), store, "x", Some(2)),
                faq(&messages(), store, Some("x")),
                faq(&messages(), store, None),
            ] {
                assert!(!reply.text.trim().is_empty(), "{store}");
            }
        }
        let edited = json!({ "recipes": { "mod.item": { "name": "Mod Item", "ingredients": [
            { "shortname": "scrap", "quantity": 5 }, { "quantity": 1 }, { "name": "Hope" },
        ] } } });
        let crafted =
            |messages: &BotMessages, pieces| craft(messages, &edited, Catalogue::embedded(), "mod ITEM", pieces);
        assert_eq!(crafted(&messages(), Some(2)).text, "**Mod Item, crafted 2 times**: 10 scrap.");
        let silent = BotMessages::new(json!({ "craft.answer": " ", "craft.unknown": 7 }));
        assert_eq!(crafted(&silent, None).text, "**Mod Item**: 5 scrap.");
        let own = BotMessages::new(json!({ "craft.answer": "{ingredients} → {item} {sic} {" }));
        assert_eq!(crafted(&own, None).text, "5 scrap → **Mod Item** {sic} {");
    }

    #[test]
    fn raids_are_listed_by_target_and_multiplied() {
        let raid = |asked: &str, amount| raid(&messages(), &shipped(StoreName::Raid), asked, amount);
        let door = raid("sheet metal door", None);
        assert!(door.text.starts_with("**Sheet metal door**: 63 "), "{}", door.text);
        assert!(door.text.contains("1 Timed Explosive Charge (2200 sulfur)") && !door.private, "{}", door.text);
        assert!(raid("Sheet Metal DOOR", Some(3)).text.contains("3 Timed Explosive Charge (6600 sulfur)"));
        assert!(raid("garage", None).text.starts_with("**Garage door**"));
        assert!(raid("metal door", None).text.starts_with("**Sheet metal door**"));
        assert!(raid("hqm armored", None).text.starts_with("**Armored"), "most words");
        let unknown = raid("moon", None);
        assert!(unknown.private && unknown.text.contains("moon.\nWooden wall, Stone wall"), "{}", unknown.text);
    }

    #[test]
    fn questions_are_found_by_their_words() {
        let faq = |asked| faq(&messages(), &shipped(StoreName::Faq), asked);
        let ban = faq(Some("can i be banned?"));
        assert!(ban.text.starts_with("**Can I be banned for using companion?**\ncompanion only uses"), "{}", ban.text);
        assert!(faq(Some("ban")).text.contains("banned"), "by its id");
        assert!(faq(Some("my pairing code")).text.contains("A code works once"));
        let all = faq(None);
        assert!(all.private && all.text.lines().count() > 10, "{}", all.text);
        let unknown = faq(Some("zzz"));
        assert!(unknown.private && unknown.text.starts_with("I have no answer to \"zzz\""), "{}", unknown.text);
    }

    #[test]
    fn an_item_is_shown_with_what_is_known_of_it() {
        let ak = item(&messages(), Catalogue::embedded(), "assault rifle").text;
        assert_eq!(ak, "**Assault Rifle** (rifle.ak, id 1545779598): Weapon, a slot holds 1, can be crafted.");
        assert!(item(&messages(), Catalogue::embedded(), "no such thing").private);
    }

    #[test]
    fn the_cheapest_offers_in_stock_are_listed_for_each_server() {
        let mut for_wood = order("rifle.ak", 1, 1_000, 1);
        for_wood.currency_id = crate::domain::shop::testing::id("wood");
        let island = shops(&[
            machine(1.0, 1.0, "Dear", &[order("rifle.ak", 1, 500, 3)]),
            machine(2.0, 1.0, "[Cheap](http://evil)", &[order("rifle.ak", 2, 600, 1), for_wood]),
            machine(3.0, 1.0, "Sold out", &[order("rifle.ak", 1, 1, 0)]),
        ]);
        let servers = [("Island".to_owned(), island), ("Desert".to_owned(), Vec::new())];
        let priced = price(&messages(), Catalogue::embedded(), "ak", &servers);
        assert_eq!(
            priced.text.lines().collect::<Vec<_>>(),
            [
                r"Assault Rifle on Island: 2 for 600 Scrap at \[Cheap\](http\://evil), A27.",
                r"Assault Rifle on Island: 1 for 1000 Wood at \[Cheap\](http\://evil), A27.",
                "No shop sells Assault Rifle on Desert now.",
            ]
        );
        assert!(priced.private);
        assert!(
            price(&messages(), Catalogue::embedded(), "nothing at all", &servers).text.starts_with("I know no item")
        );
        assert_eq!(price(&messages(), Catalogue::embedded(), "ak", &[]).text, "You have no paired server yet.");
    }

    #[test]
    fn a_long_answer_ends_where_a_message_must() {
        let entry = |answer: String| json!({ "entries": [{ "id": "a", "question": "Long?", "answer": answer }] });
        let length = |text: &str| text.encode_utf16().count();
        for answer in ["word ".repeat(1_000), "line\n".repeat(1_000), "x".repeat(5_000), "😀".repeat(3_000)] {
            let reply = faq(&messages(), &entry(answer), Some("long")).text;
            assert!(reply.ends_with('…') && (1_500..=2_000).contains(&length(&reply)), "{}", length(&reply));
        }
        let exact = faq(&messages(), &entry("x".repeat(2_000 - "**Long?**\n".len())), Some("long")).text;
        assert!(length(&exact) == 2_000 && !exact.ends_with('…'));
    }
}

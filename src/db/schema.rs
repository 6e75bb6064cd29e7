//! The tables, the same for both engines. `diesel print-schema` writes the part below.
//!
//! Above 500 lines: one table after the other, as they are printed.

diesel::table! {
    alarms (id) {
        id -> Text,
        user_id -> Text,
        server_id -> Nullable<Text>,
        path -> Text,
        alarm_id -> Text,
        title -> Text,
        message -> Text,
        received_at -> Timestamp,
        state -> Text,
        incident -> Nullable<Text>,
        finished_at -> Nullable<Timestamp>,
        sent_at -> Nullable<Timestamp>,
    }
}

diesel::table! {
    incidents (id) {
        id -> Text,
        server_id -> Text,
        alarm_id -> Text,
        alarm_name -> Text,
        title -> Nullable<Text>,
        x -> Nullable<Double>,
        y -> Nullable<Double>,
        grid -> Text,
        first_at -> Timestamp,
        last_at -> Timestamp,
        ended_at -> Nullable<Timestamp>,
        count -> BigInt,
        paths -> Text,
        late -> Bool,
        drill -> Bool,
        state -> Text,
        sockets -> BigInt,
        heard_at -> Nullable<Timestamp>,
    }
}

diesel::table! {
    incident_acks (incident_id, user_id) {
        incident_id -> Text,
        user_id -> Text,
        at -> Timestamp,
    }
}

diesel::table! {
    merged_incidents (id) {
        id -> Text,
        incident_id -> Text,
    }
}

diesel::table! {
    timeline (id) {
        id -> Text,
        user_id -> Nullable<Text>,
        server_id -> Nullable<Text>,
        game_server_id -> Nullable<Text>,
        kind -> Text,
        action -> Text,
        ts -> Timestamp,
        grid -> Text,
        x -> Nullable<Double>,
        y -> Nullable<Double>,
        title -> Text,
        data -> Text,
    }
}

diesel::table! {
    map_notes (server_id, id) {
        server_id -> Text,
        id -> Text,
        author_id -> Nullable<Text>,
        source -> Text,
        x -> Double,
        y -> Double,
        category -> Text,
        label -> Nullable<Text>,
        created_at -> Timestamp,
        expires_at -> Nullable<Timestamp>,
    }
}

diesel::table! {
    users (id) {
        id -> Text,
        platform_id -> Text,
        display_name -> Text,
        avatar_url -> Nullable<Text>,
        created_at -> Timestamp,
        last_seen_at -> Timestamp,
        time_zone -> Nullable<Text>,
        locale -> Nullable<Text>,
    }
}

diesel::table! {
    sessions (id) {
        id -> Text,
        user_id -> Text,
        created_at -> Timestamp,
        last_seen_at -> Timestamp,
        expires_at -> Timestamp,
    }
}

diesel::table! {
    held_parts (part) {
        part -> Text,
        node -> Text,
        number -> BigInt,
        since -> Timestamp,
    }
}

diesel::table! {
    node_news (id) {
        id -> Text,
        node -> Text,
        at -> Timestamp,
        news -> Text,
    }
}

diesel::table! {
    openid_nonces (endpoint, nonce) {
        endpoint -> Text,
        nonce -> Text,
        seen_at -> Timestamp,
    }
}

diesel::table! {
    paired_servers (id) {
        id -> Text,
        owner_id -> Text,
        game_server_id -> Nullable<Text>,
        name -> Text,
        address -> Text,
        port -> Integer,
        player_id -> Text,
        player_token_sealed -> Binary,
        created_at -> Timestamp,
        updated_at -> Timestamp,
        wipe_time -> Nullable<BigInt>,
        seed -> Nullable<BigInt>,
        salt -> Nullable<BigInt>,
        map_size -> Nullable<BigInt>,
        level_name -> Nullable<Text>,
        key_version -> Integer,
        monuments -> Nullable<Text>,
        link_alive_at -> Nullable<Timestamp>,
        credentials_version -> Integer,
        accepted_version -> Nullable<Integer>,
        paired_at -> Nullable<Timestamp>,
    }
}

diesel::table! {
    smart_devices (server_id, device_id) {
        server_id -> Text,
        device_id -> Text,
        kind -> Text,
        name -> Text,
        label -> Nullable<Text>,
        custom_command -> Nullable<Text>,
        on_message -> Nullable<Text>,
        off_message -> Nullable<Text>,
        created_at -> Timestamp,
        last_value -> Nullable<Bool>,
        x -> Nullable<Double>,
        y -> Nullable<Double>,
        reported -> Nullable<Text>,
    }
}

diesel::table! {
    pairing_codes (code) {
        code -> Text,
        user_id -> Text,
        label -> Nullable<Text>,
        created_at -> Timestamp,
        expires_at -> Timestamp,
        server_id -> Nullable<Text>,
        sections -> Nullable<Text>,
        issued_from -> Nullable<Text>,
    }
}

diesel::table! {
    pairing_requests (id) {
        id -> Text,
        code -> Text,
        network -> Text,
        requested_at -> Timestamp,
        confirmed_at -> Nullable<Timestamp>,
    }
}

diesel::table! {
    api_tokens (id) {
        id -> Text,
        user_id -> Text,
        token_hash -> Text,
        label -> Text,
        scopes -> Text,
        server_id -> Nullable<Text>,
        created_at -> Timestamp,
        expires_at -> Nullable<Timestamp>,
        last_used_at -> Nullable<Timestamp>,
    }
}

diesel::table! {
    helper_devices (id) {
        id -> Text,
        user_id -> Text,
        token_hash -> Text,
        label -> Nullable<Text>,
        created_at -> Timestamp,
        last_used_at -> Nullable<Timestamp>,
        server_id -> Nullable<Text>,
        sections -> Nullable<Text>,
        seen_at -> Nullable<Timestamp>,
        warn_at -> Nullable<Timestamp>,
    }
}

diesel::table! {
    encryption_keys (number) {
        number -> Integer,
        fingerprint -> Text,
        first_seen_at -> Timestamp,
    }
}

diesel::table! {
    program_versions (version) {
        version -> Text,
        newest_step -> Text,
    }
}

diesel::table! {
    push_credentials (user_id) {
        user_id -> Text,
        sealed -> Binary,
        key_version -> Integer,
        uploaded_at -> Timestamp,
        expires_at -> Timestamp,
        proven_at -> Nullable<Timestamp>,
        staged_sealed -> Nullable<Binary>,
        staged_key_version -> Nullable<Integer>,
        staged_uploaded_at -> Nullable<Timestamp>,
        staged_expires_at -> Nullable<Timestamp>,
        uploaded_by -> Nullable<Text>,
        staged_uploaded_by -> Nullable<Text>,
        warn_at -> Nullable<Timestamp>,
    }
}

diesel::table! {
    push_refusals (user_id) {
        user_id -> Text,
        uploaded_at -> Timestamp,
        uploaded_by -> Nullable<Text>,
        reason -> Text,
        refused_at -> Timestamp,
        dismissed -> Bool,
    }
}

diesel::table! {
    push_registrations (user_id) {
        user_id -> Text,
        id -> Text,
        renew_asked -> Bool,
        renew -> Bool,
        closes_at -> Timestamp,
        step -> Nullable<Text>,
        fault -> Nullable<Text>,
        answer -> Nullable<Text>,
        failures -> Integer,
        sealed -> Binary,
        key_version -> Integer,
        bundle_at -> Nullable<Timestamp>,
        ends_at -> Nullable<Timestamp>,
        due_at -> Nullable<Timestamp>,
    }
}

diesel::table! {
    push_seen (user_id, persistent_id) {
        user_id -> Text,
        persistent_id -> Text,
        received_at -> Timestamp,
    }
}

diesel::table! {
    failed_pushes (user_id, push_id) {
        user_id -> Text,
        push_id -> Text,
        attempts -> Integer,
        reason -> Text,
        content -> Text,
        failed_at -> Timestamp,
        dead -> Bool,
    }
}

diesel::table! {
    tracked_players (id) {
        id -> Text,
        server_id -> Text,
        tracker_name -> Text,
        name_key -> Text,
        tag -> Nullable<Text>,
        note -> Nullable<Text>,
        platform_id -> Nullable<Text>,
        author_id -> Text,
        created_at -> Timestamp,
        online_since -> Nullable<Timestamp>,
        last_seen_at -> Nullable<Timestamp>,
        missed -> Integer,
    }
}

diesel::table! {
    player_sessions (player_id, began_at) {
        player_id -> Text,
        began_at -> Timestamp,
        ended_at -> Timestamp,
    }
}

diesel::table! {
    server_matches (address, port) {
        address -> Text,
        port -> Integer,
        matched -> Nullable<Text>,
        names_hidden -> Bool,
        checked_at -> Timestamp,
        polled_at -> Nullable<Timestamp>,
    }
}

diesel::table! {
    alias_answers (name_key, stats_server) {
        name_key -> Text,
        stats_server -> Text,
        answer -> Text,
        as_of -> Timestamp,
    }
}

diesel::table! {
    markets (game_server_id) {
        game_server_id -> Text,
        wipe -> Integer,
        world -> Nullable<Text>,
        available -> Nullable<Bool>,
        evidence -> Nullable<Text>,
        as_of -> Nullable<Timestamp>,
        events_available -> Nullable<Bool>,
        events_evidence -> Nullable<Text>,
        events_as_of -> Nullable<Timestamp>,
    }
}

diesel::table! {
    shops (game_server_id, wipe, vendor_id) {
        game_server_id -> Text,
        wipe -> Integer,
        vendor_id -> Text,
        name -> Text,
        grid -> Text,
        npc -> Nullable<Bool>,
        offers -> Text,
        first_seen_at -> Timestamp,
        changed_at -> Timestamp,
        gone_at -> Nullable<Timestamp>,
        returns -> Integer,
        moved_from -> Nullable<Text>,
    }
}

diesel::table! {
    shop_history (id) {
        id -> Text,
        game_server_id -> Text,
        wipe -> Integer,
        vendor_id -> Text,
        at -> Timestamp,
        news -> Text,
        item_id -> Integer,
        item_is_blueprint -> Bool,
        worn -> Bool,
        currency_id -> Integer,
        currency_is_blueprint -> Bool,
        cost -> Integer,
        quantity -> Integer,
        in_stock -> BigInt,
    }
}

diesel::table! {
    shop_watches (id) {
        id -> Text,
        server_id -> Text,
        vendor_id -> Nullable<Text>,
        item_id -> Integer,
        side -> Text,
        direction -> Text,
        expected_price -> Nullable<Integer>,
        currency_id -> Nullable<Integer>,
        created_at -> Timestamp,
        version -> Integer,
        baseline_currency_id -> Nullable<Integer>,
        baseline_cost -> Nullable<Integer>,
        baseline_quantity -> Nullable<Integer>,
        state -> Text,
        found_vendor_id -> Nullable<Text>,
        cost -> Nullable<Integer>,
        quantity -> Nullable<Integer>,
        sold_out -> Bool,
        undercut_by -> Nullable<Text>,
        undercut_cost -> Nullable<Integer>,
        undercut_quantity -> Nullable<Integer>,
        as_of -> Timestamp,
    }
}

diesel::table! {
    player_stats_spending (user_id) {
        user_id -> Text,
        day -> Timestamp,
        spent -> BigInt,
    }
}

diesel::table! {
    guests (id) {
        id -> Text,
        server_id -> Text,
        user_id -> Nullable<Text>,
        platform_id -> Nullable<Text>,
        token_hash -> Nullable<Text>,
        label -> Nullable<Text>,
        invited_at -> Timestamp,
        expires_at -> Nullable<Timestamp>,
        since -> Nullable<Timestamp>,
    }
}

diesel::table! {
    refused_invites (user_id, server_id) {
        user_id -> Text,
        server_id -> Text,
        refused_at -> Timestamp,
    }
}

diesel::table! {
    blocked_inviters (user_id, blocked_user_id) {
        user_id -> Text,
        blocked_user_id -> Text,
        blocked_at -> Timestamp,
    }
}

diesel::table! {
    payment_customers (user_id) {
        user_id -> Text,
        customer_id -> Text,
        open_checkout -> Nullable<Text>,
    }
}

diesel::table! {
    subscriptions (id) {
        id -> Text,
        user_id -> Text,
        customer_id -> Text,
        tier -> Nullable<Text>,
        status -> Text,
        price -> Nullable<Text>,
        period_start -> Nullable<Timestamp>,
        period_end -> Nullable<Timestamp>,
        cancel_at_period_end -> Bool,
        lapsed -> Bool,
        started_at -> Timestamp,
        fetched_at -> Timestamp,
        version -> BigInt,
        past_due_since -> Nullable<Timestamp>,
        paid_tier -> Nullable<Text>,
        billing_interval -> Nullable<Text>,
        ended_unknown -> Bool,
    }
}

diesel::table! {
    customers_to_end (customer_id) {
        customer_id -> Text,
        attempts -> Integer,
        next_attempt_at -> Timestamp,
    }
}

diesel::table! {
    erased_customers (customer_hash) {
        customer_hash -> Text,
    }
}

diesel::table! {
    former_subscribers (account_mark) {
        account_mark -> Text,
    }
}

diesel::table! {
    chat_lines (server_id, id) {
        server_id -> Text,
        id -> Text,
        said_at -> Timestamp,
        author -> Text,
        text -> Text,
        author_id -> Nullable<Text>,
    }
}

diesel::table! {
    chat_links (user_id) {
        user_id -> Text,
        chat_user_id -> Text,
        linked_at -> Timestamp,
    }
}

diesel::table! {
    chat_link_codes (chat_user_id) {
        chat_user_id -> Text,
        code_hash -> Text,
        expires_at -> Timestamp,
    }
}

diesel::table! {
    payment_events (id) {
        id -> Text,
        kind -> Text,
        subscription_id -> Nullable<Text>,
        customer_id -> Nullable<Text>,
        user_hint -> Nullable<Text>,
        state -> Text,
        reason -> Nullable<Text>,
        received_at -> Timestamp,
        attempts -> Integer,
        next_attempt_at -> Nullable<Timestamp>,
        charge_id -> Nullable<Text>,
    }
}

diesel::table! {
    maps (address, port) {
        address -> Text,
        port -> Integer,
        world -> Text,
        monuments -> Text,
        background -> Nullable<Text>,
        width -> Integer,
        height -> Integer,
        margin -> Integer,
        version -> Text,
        stored_at -> Timestamp,
    }
}

diesel::table! {
    audit (id) {
        id -> BigInt,
        at -> Timestamp,
        actor -> Text,
        action -> Text,
        target -> Text,
        payload -> Text,
        result -> Text,
        hash -> Text,
    }
}

diesel::table! {
    audit_head (singleton) {
        singleton -> Integer,
        id -> BigInt,
        hash -> Text,
    }
}

diesel::table! {
    user_search (user_id, key) {
        user_id -> Text,
        key -> Text,
    }
}

diesel::table! {
    active_days (day, user_id) {
        day -> Timestamp,
        user_id -> Text,
    }
}

diesel::table! {
    daily_counts (day, kind) {
        day -> Timestamp,
        kind -> Text,
        count -> BigInt,
    }
}

diesel::table! {
    beta_testers (platform_id) {
        platform_id -> Text,
        tier -> Text,
        note -> Nullable<Text>,
        expires_at -> Nullable<Timestamp>,
        created_at -> Timestamp,
    }
}

diesel::table! {
    map_pictures (address, port, size) {
        address -> Text,
        port -> Integer,
        size -> Integer,
        version -> Text,
        jpeg -> Binary,
    }
}

diesel::table! {
    store_versions (name, version) {
        name -> Text,
        version -> BigInt,
        data -> Text,
        bytes -> BigInt,
        digest -> Text,
        written_at -> Timestamp,
        written_by -> Text,
    }
}

diesel::table! {
    wiki_pages (slug) {
        slug -> Text,
        version -> BigInt,
        place -> Nullable<Text>,
        digest -> Text,
    }
}

diesel::table! {
    wiki_versions (slug, version) {
        slug -> Text,
        version -> BigInt,
        frontmatter -> Text,
        body -> Text,
        digest -> Text,
        written_at -> Timestamp,
        written_by -> Text,
    }
}

diesel::table! {
    edited_items (id) {
        id -> Integer,
        shortname -> Text,
        name -> Text,
        category -> Text,
        stack_size -> Nullable<Integer>,
        icon -> Nullable<Text>,
        updated_at -> Timestamp,
    }
}

diesel::table! {
    edited_items_version (id) {
        id -> Integer,
        version -> BigInt,
    }
}

diesel::table! {
    conveyor_rows (shortname) {
        shortname -> Text,
        item_id -> Integer,
        category -> Text,
        updated_at -> Timestamp,
    }
}

diesel::table! {
    images (name) {
        name -> Text,
        bytes -> BigInt,
        width -> Integer,
        height -> Integer,
        uploaded_at -> Timestamp,
        unused_since -> Nullable<Timestamp>,
        doomed -> Bool,
    }
}

diesel::table! {
    image_uses (image, used_by) {
        image -> Text,
        used_by -> Text,
    }
}

diesel::table! {
    write_checks (checked_at) {
        checked_at -> Timestamp,
        filler -> Text,
    }
}

diesel::table! {
    idempotency_keys (id) {
        id -> Text,
        caller -> Text,
        request -> Text,
        sealed -> Binary,
        claimed_until -> Nullable<Timestamp>,
        created_at -> Timestamp,
        device_id -> Nullable<Text>,
    }
}

diesel::table! {
    refund_attempts (begun) {
        begun -> BigInt,
        charge_id -> Text,
        payment_intent_id -> Nullable<Text>,
        issued_at -> Timestamp,
        claimed_until -> Timestamp,
        outcome -> Nullable<BigInt>,
        named_at -> Nullable<Timestamp>,
    }
}

diesel::table! {
    team_chat_settings (server_id) {
        server_id -> Text,
        settings -> Text,
    }
}

diesel::table! {
    device_groups (id) {
        id -> Text,
        server_id -> Text,
        name -> Text,
        command -> Nullable<Text>,
        devices -> Text,
        created_at -> Timestamp,
    }
}

diesel::table! {
    team_timers (id, server_id) {
        id -> Text,
        server_id -> Text,
        number -> Integer,
        text -> Text,
        created_at -> Timestamp,
        ends_at -> Timestamp,
        team -> Nullable<Text>,
    }
}

diesel::table! {
    switch_backs (server_id, device_id) {
        server_id -> Text,
        device_id -> Text,
        value -> Bool,
        due_at -> Timestamp,
    }
}

diesel::table! {
    day_speeds (game_server) {
        game_server -> Text,
        day -> Nullable<Double>,
        night -> Nullable<Double>,
    }
}

diesel::table! {
    channels (id) {
        id -> Text,
        user_id -> Text,
        kind -> Text,
        name -> Text,
        host -> Text,
        target_hash -> Text,
        sealed -> Binary,
        key_version -> Integer,
        state -> Text,
        reason -> Nullable<Text>,
        failing_since -> Nullable<Timestamp>,
        accepted_at -> Nullable<Timestamp>,
        created_at -> Timestamp,
        failures -> Integer,
        warn_at -> Nullable<Timestamp>,
        origin -> Text,
    }
}

diesel::table! {
    alarm_rules (server_id, user_id) {
        server_id -> Text,
        user_id -> Text,
        rules -> Text,
    }
}

diesel::table! {
    notices (incident_id, user_id) {
        incident_id -> Text,
        server_id -> Text,
        user_id -> Text,
        opened_at -> Timestamp,
        round -> Integer,
        round_at -> Timestamp,
        due_at -> Nullable<Timestamp>,
        event -> Nullable<Text>,
    }
}

diesel::table! {
    deliveries (id) {
        id -> Text,
        incident_id -> Text,
        user_id -> Text,
        channel_id -> Text,
        round -> Integer,
        state -> Text,
        attempts -> Integer,
        queued_at -> Timestamp,
        due_at -> Nullable<Timestamp>,
        status -> Nullable<Integer>,
        reason -> Nullable<Text>,
        ended_at -> Nullable<Timestamp>,
        urgent -> Bool,
        receipt -> Nullable<Text>,
        rings_until -> Nullable<Timestamp>,
    }
}

diesel::table! {
    spoken_alarms (incident_id, server_id) {
        incident_id -> Text,
        server_id -> Text,
        state -> Text,
        reason -> Nullable<Text>,
        queued_at -> Timestamp,
        ended_at -> Nullable<Timestamp>,
    }
}

diesel::table! {
    vapid_keys (id) {
        id -> Text,
        sealed -> Binary,
        key_version -> Integer,
        created_at -> Timestamp,
    }
}

diesel::joinable!(incident_acks -> incidents (incident_id));
diesel::joinable!(guests -> paired_servers (server_id));
diesel::joinable!(blocked_inviters -> users (blocked_user_id));
diesel::joinable!(sessions -> users (user_id));
diesel::joinable!(pairing_requests -> pairing_codes (code));
diesel::joinable!(paired_servers -> users (owner_id));
diesel::joinable!(deliveries -> channels (channel_id));
diesel::joinable!(smart_devices -> paired_servers (server_id));
diesel::allow_tables_to_appear_in_same_query!(incidents, incident_acks);
diesel::allow_tables_to_appear_in_same_query!(deliveries, channels);
diesel::allow_tables_to_appear_in_same_query!(images, image_uses);
diesel::allow_tables_to_appear_in_same_query!(pairing_requests, pairing_codes);
diesel::allow_tables_to_appear_in_same_query!(beta_testers, users);
diesel::allow_tables_to_appear_in_same_query!(maps, paired_servers);
diesel::allow_tables_to_appear_in_same_query!(
    users,
    sessions,
    paired_servers,
    smart_devices,
    guests,
    refused_invites,
    blocked_inviters,
);

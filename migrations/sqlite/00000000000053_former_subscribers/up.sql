-- Keyed hashes of the accounts that had a subscription and erased themselves: there is one trial for an account.
CREATE TABLE former_subscribers (
    account_mark TEXT NOT NULL PRIMARY KEY
);

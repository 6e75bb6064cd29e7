-- Refunds that were begun and are not known to be over, or whose outcome nobody has been shown.
CREATE TABLE refund_attempts (
    -- the entry of the audit log that it was begun
    begun BIGINT NOT NULL PRIMARY KEY,
    charge_id TEXT NOT NULL,
    payment_intent_id TEXT,
    issued_at TIMESTAMP NOT NULL,
    -- until then a process is at it
    claimed_until TIMESTAMP NOT NULL,
    -- the entry of the audit log that it is over
    outcome BIGINT
);
CREATE INDEX refund_attempts_charge_id ON refund_attempts (charge_id);
CREATE INDEX refund_attempts_payment_intent_id ON refund_attempts (payment_intent_id);
CREATE INDEX refund_attempts_claimed_until ON refund_attempts (claimed_until);
CREATE INDEX refund_attempts_issued_at ON refund_attempts (issued_at);

-- Those of which the log did not say what became of them: the process ended, or the provider did not answer.
INSERT INTO refund_attempts (begun, charge_id, payment_intent_id, issued_at, claimed_until)
SELECT begun.id, begun.target, json_extract(begun.payload, '$.asked.paymentIntentId'), begun.at, begun.at
FROM audit begun
WHERE begun.action = 'refund' AND begun.result = 'begun' AND json_extract(begun.payload, '$.asked.idempotencyKey') IS NOT NULL
    AND NOT EXISTS (
        SELECT 1 FROM audit over
        WHERE over.action = 'refund' AND over.target = begun.target AND over.id > begun.id
            AND json_extract(over.payload, '$.begun') = CAST(begun.id AS TEXT)
            AND (over.result = 'done'
                OR COALESCE(json_extract(over.payload, '$.after.error'), '') <> 'payment_provider_unavailable'));

-- Incidents that turned out to be a part of an older one: clients may still name them.
CREATE TABLE merged_incidents (
    id TEXT NOT NULL PRIMARY KEY,
    incident_id TEXT NOT NULL REFERENCES incidents (id) ON DELETE CASCADE
);
CREATE INDEX merged_incidents_incident_id ON merged_incidents (incident_id);

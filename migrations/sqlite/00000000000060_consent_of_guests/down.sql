DROP TABLE blocked_inviters;
DROP TABLE refused_invites;

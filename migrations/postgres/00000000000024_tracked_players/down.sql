DROP TABLE player_stats_spending;
DROP TABLE alias_answers;
DROP TABLE server_matches;
DROP TABLE player_sessions;
DROP TABLE tracked_players;

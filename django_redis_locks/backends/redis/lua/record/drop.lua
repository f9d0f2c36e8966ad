-- Deletes the record if it has the expected version, or if a request with this nonce wrote it. Notifies all waiters.
-- The first write is DEL, which a server at maxmemory allows.
--
-- uses wake wake_all read_value read_record record_index
-- KEYS  record, waiters, index of what is held, index of what is queued
-- ARGV  version (0: compare the nonce only), nonce
-- returns  {1}, or the current state: {0, ms left, version, fields}, {0} if absent, {-1, what}
local current, nonce = read_record(KEYS[1])
if not nonce or (current[3] ~= ARGV[1] and nonce ~= ARGV[2]) then return current end
redis.call('DEL', KEYS[1])
local index = record_index(nonce, KEYS[3], KEYS[4])
if index then redis.call('ZREM', index, KEYS[1]) end
wake_all(KEYS[1], KEYS[2])
return {1}

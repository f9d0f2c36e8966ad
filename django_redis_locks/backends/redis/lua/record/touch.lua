-- Extends the lease of the record to some ms from now, if it has the expected version. Shortens the lease only on request.
--
-- uses read_value read_record record_index now_ms
-- KEYS  record, index of what is held, index of what is queued
-- ARGV  version, lease in ms, 1 to shorten too
-- returns  {1, version}, or the current state: {0, ms left, version, fields}, {0} if absent, {-1, what}
local current, nonce = read_record(KEYS[1])
if current[1] ~= 0 or current[3] ~= ARGV[1] then return current end
local lease = tonumber(ARGV[2])
if current[2] < lease or ARGV[3] == '1' then
  redis.call('PEXPIRE', KEYS[1], lease)
  local index = record_index(nonce, KEYS[2], KEYS[3])
  if index then redis.call('ZADD', index, 'XX', now_ms(redis.call('TIME')) + lease, KEYS[1]) end
end
return {1, current[3]}

-- Sets the lease of the record to end some ms from now, if its version is the expected one. The lease is not shortened
-- unless that is requested.
--
-- uses read_value read_record record_index now_ms
-- KEYS  record, index of what is held, index of what is queued
-- ARGV  version, lease in ms, 1 to shorten too
-- returns  {1, version}, or the current state: {0, ms left, version, fields}, {0} if absent, {-1, what}
local now, nonce = read_record(KEYS[1])
if now[1] ~= 0 or now[3] ~= ARGV[1] then return now end
local lease = tonumber(ARGV[2])
if now[2] < lease or ARGV[3] == '1' then
  redis.call('PEXPIRE', KEYS[1], lease)
  local index = record_index(nonce, KEYS[2], KEYS[3])
  if index then redis.call('ZADD', index, 'XX', now_ms(redis.call('TIME')) + lease, KEYS[1]) end
end
return {1, now[3]}

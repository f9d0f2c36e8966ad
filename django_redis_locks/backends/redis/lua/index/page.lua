-- Returns one page of the index, sorted by the end of the leases: either the held locks, or those whose lease ended without
-- a release.
--
-- uses now_ms
-- KEYS  index
-- ARGV  'held' or 'ended', entries to skip, maximum number of entries, 1 for descending order
-- returns  {ms of the server's clock, total number of entries, lock, end of its lease in ms, lock, ...}
local now = now_ms(redis.call('TIME'))
local least, most = '(' .. now, '+inf'
if ARGV[1] == 'ended' then least, most = '-inf', now end
local total = redis.call('ZCOUNT', KEYS[1], least, most)
local found
if ARGV[4] == '1' then
  found = redis.call('ZREVRANGEBYSCORE', KEYS[1], most, least, 'WITHSCORES', 'LIMIT', ARGV[2], ARGV[3])
else
  found = redis.call('ZRANGEBYSCORE', KEYS[1], least, most, 'WITHSCORES', 'LIMIT', ARGV[2], ARGV[3])
end
return {now, total, unpack(found)}

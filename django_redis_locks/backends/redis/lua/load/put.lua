-- Writes a value and voids any claim, so that the value of a running load is not stored. At maxmemory the old value stays,
-- but the claim is voided.
--
-- uses wake wake_all
-- KEYS  lease, waiters, permit, value
-- ARGV  ms to keep it (-1: for ever, 0: delete it), value
-- returns  1
redis.call('DEL', KEYS[1], KEYS[3])
local done
if ARGV[1] == '0' then
  redis.call('DEL', KEYS[4])
elseif ARGV[1] == '-1' then
  done = redis.pcall('SET', KEYS[4], ARGV[2])
else
  done = redis.pcall('SET', KEYS[4], ARGV[2], 'PX', ARGV[1])
end
wake_all(KEYS[1], KEYS[2])
if done and done.err then return done end
return 1

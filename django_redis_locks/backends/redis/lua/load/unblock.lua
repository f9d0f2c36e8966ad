-- Ends the block of load/block with this token. If another caller overrode the block, voids the new claim, because its load
-- may have begun before the write. The block of another writer (its token begins with w:) stays. Notifies all waiters.
--
-- uses wake wake_all read_value read_load
-- KEYS  generation (and for each value: lease, waiters, permit)
-- ARGV  token
-- returns  1
local generation = redis.call('GET', KEYS[1]) or '0'
for at = 2, #KEYS, 3 do
  redis.call('DEL', KEYS[at + 2])
  local token = read_load(KEYS[at], generation)
  if token and (token == ARGV[1] or string.sub(token, 1, 2) ~= 'w:') then
    redis.call('DEL', KEYS[at])
    wake_all(KEYS[at], KEYS[at + 1])
  end
end
return 1

-- Acquires several locks, all or none: if each is free, or held with its token already. Otherwise returns the first one that
-- isn't. A repeated request gets the same fences as the first one, and never shortens a lease.
-- A fair lock that is free while others wait, because a lease has ended, is granted to the first of them that is alive.
-- At maxmemory the first write for free locks fails, before any of them is changed.
--
-- uses now_ms next_fence read_value
-- KEYS  fence counter, locks, the waiters of each lock, index
-- ARGV  token, lease in ms, 1 if it is fair, holder (these four for each lock)
-- returns  {1, the fence of each lock}  granted
--          {0, number of the lock from 0, ms left, fence, since in ms, holder}  it is busy
--          {-1, number of the lock, what}  its key holds a value that is not a lock of this kind
local counter, last = KEYS[1], #ARGV / 4 - 1
local index = KEYS[4 + 2 * last]
local fences, free, claimed = {1}, {}, {}
for n = 0, last do
  local lock, waiters = KEYS[2 + n], KEYS[3 + last + n]
  local value = redis.pcall('GET', lock)
  if not value and ARGV[3 + 4 * n] == '1' then
    -- uses grant_next grant_after_lease
    value = grant_after_lease(lock, waiters, counter, index, '', 0)
  end
  if value then
    local token, fence, since, holder, left = read_value(lock, value, 'lock')
    if not token then return fence.err and fence or {-1, n, fence[2]} end
    if token ~= ARGV[1 + 4 * n] then return {0, n, left, fence, since, holder} end
    fences[2 + n] = tonumber(fence)
    claimed[#claimed + 1] = {n, lock, value, left}
  else
    free[#free + 1] = n
  end
end

local function details(n)
  local holder = ARGV[4 + 4 * n]
  return holder ~= '' and ' ' .. holder or ''
end

for _, found in ipairs(claimed) do
  -- uses claim
  local n, lock, value, left = unpack(found)
  claim(lock, value, left, ARGV[2 + 4 * n], '', details(n), index)
end
if not free[1] then return fences end
local time = redis.call('TIME')
local fence, since = next_fence(counter, nil, time, #free - 1)
if not fence then return since end
local now, first, entries = now_ms(time), tonumber(fence), {}
for i, n in ipairs(free) do
  if i > 1 then fence, since = string.format('%.0f', first + i - 1), string.format('@%.0f', now) end
  local lock, lease = KEYS[2 + n], ARGV[2 + 4 * n]
  redis.call('SET', lock, '1 lock ' .. ARGV[1 + 4 * n] .. ' ' .. fence .. since .. details(n), 'PX', lease)
  fences[2 + n] = first + i - 1
  entries[#entries + 1] = now + lease
  entries[#entries + 1] = lock
end
if index then
  redis.call('ZADD', index, unpack(entries))
  if time[2] % 100 == 0 then
    -- uses purge_index
    purge_index(index, now)
  end
end
return fences

-- Returns the place of a waiter without one: that of its address if it is registered, because a request without a reply is sent
-- again. Otherwise the server's clock in microseconds, but behind all others, also if the clock was set back.
local function place_in_line(waiters, address)
  local registered = address and redis.call('ZSCORE', waiters, address)
  if registered and registered ~= '0' then return registered end
  local time = redis.call('TIME')
  local last = redis.call('ZREVRANGE', waiters, 0, 0, 'WITHSCORES')[2]
  return string.format('%.0f', math.max(time[1] * 1000000 + time[2], (tonumber(last) or 0) + 1))
end

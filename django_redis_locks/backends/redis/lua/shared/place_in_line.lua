-- Returns the place of a new waiter: the server's clock in microseconds, but behind all others, also if the clock was set back.
local function place_in_line(waiters)
  local time = redis.call('TIME')
  local last = redis.call('ZREVRANGE', waiters, 0, 0, 'WITHSCORES')[2]
  return string.format('%.0f', math.max(time[1] * 1000000 + time[2], (tonumber(last) or 0) + 1))
end

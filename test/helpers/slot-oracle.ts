/** Returns the wall clock of a zone at a time, `YYYY-MM-DD HH:MM`, by JavaScript's calendar. */
function createWallClock(zone: string): (seconds: number) => string {
  const format = new Intl.DateTimeFormat('sv-SE', {
    timeZone: zone,
    dateStyle: 'short',
    timeStyle: 'short',
    hourCycle: 'h23',
  });
  return (seconds) => format.format(seconds * 1000);
}

const quarterSeconds = 900;

/**
 * Returns when the clocks of a zone first show a time of a date or a later one, Unix seconds. Tests every minute of its
 * quarter of an hour.
 */
export function firstMoment(zone: string, date: string, time: string): number {
  const wallClock = createWallClock(zone);
  const wanted = `${date} ${time}`;
  const noon = Date.parse(`${date}T12:00:00Z`) / 1000;
  for (let quarter = noon - 30 * 3600; quarter < noon + 50 * 3600; quarter += quarterSeconds) {
    if (wallClock(quarter) < wanted) continue;
    for (let moment = quarter - quarterSeconds; moment <= quarter; moment += 60)
      if (wallClock(moment) >= wanted) return moment;
  }
  throw new Error(`${zone} has no ${wanted}`);
}

/** Returns the date some days after another. */
export function addDays(date: string, days: number): string {
  return new Date(Date.parse(`${date}T00:00:00Z`) + days * 86_400_000).toISOString().slice(0, 10);
}

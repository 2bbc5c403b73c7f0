export const frequencies = ['hour', 'day', 'week'] as const;
export type Frequency = (typeof frequencies)[number];

/** Days of the week, Monday first. */
export const weekdays = ['monday', 'tuesday', 'wednesday', 'thursday', 'friday', 'saturday', 'sunday'] as const;

/**
 * The slots of a schedule. A slot is a number: hours since 1970 (UTC), or days or weeks of the calendar. So neither
 * clocks nor changed rules of a zone change it.
 */
export interface SlotRule {
  readonly every: Frequency;
  /** `HH:MM` in the zone; of an hour `:MM`, in UTC. */
  readonly at: string;
  /** Of a week: 1 (Monday) to 7. */
  readonly weekday?: number;
  readonly timezone: string;
}

/** Slots from first to last, inclusive. */
export type SlotSpan = readonly [first: number, last: number];

const hourMs = 3_600_000;
const dayMs = 24 * hourMs;

/** Days from 1970-01-01, a Thursday, to the first day of week 0. */
const weekOffset = ({ weekday = 1 }: SlotRule): number => (weekday + 3) % 7;

function dayOf(rule: SlotRule, slot: number): number {
  return rule.every === 'week' ? slot * 7 + weekOffset(rule) : slot;
}

/** Returns the date, `YYYY-MM-DD`, of a number of days since 1970. */
export function toDate(day: number): string {
  return new Date(day * dayMs).toISOString().slice(0, 10);
}

/** Returns the days since 1970 of a date. */
export function toDay(date: string): number {
  return Date.parse(`${date}T00:00:00Z`) / dayMs;
}

/** Returns the date of a slot, `YYYY-MM-DD`; of an hour in UTC. */
export function slotDate(rule: SlotRule, slot: number): string {
  return rule.every === 'hour' ? toDate(Math.floor(slot / 24)) : toDate(dayOf(rule, slot));
}

/** Returns the slot of a date, or the last one before it. Not for hours. */
export function slotOfDate(rule: SlotRule, date: string): number {
  const day = toDay(date);
  return rule.every === 'week' ? Math.floor((day - weekOffset(rule)) / 7) : day;
}

/** Returns the time of an hour's slot, Unix ms. */
export function hourSlotMs({ at }: SlotRule, slot: number): number {
  return slot * hourMs + Number(at.slice(1)) * 60_000;
}

/** Returns the newest hour's slot whose time has come. */
export function newestHourSlot(rule: SlotRule, nowMs: number): number {
  return Math.floor((nowMs - hourSlotMs(rule, 0)) / hourMs);
}

/** Returns the name of a slot: its date, `2026-11-23`; of an hour `2026-11-23T04Z`. */
export function slotName(rule: SlotRule, slot: number): string {
  return rule.every === 'hour' ? `${new Date(slot * hourMs).toISOString().slice(0, 13)}Z` : slotDate(rule, slot);
}

/** Returns the arguments of the period before a slot: the hour, the day or the seven days. */
export function periodOf(rule: SlotRule, slot: number): Readonly<Record<string, string>> {
  if (rule.every === 'hour') return { tsFrom: String((slot - 1) * 3600), tsTo: String(slot * 3600 - 1) };
  const day = dayOf(rule, slot);
  return { dateFrom: toDate(rule.every === 'week' ? day - 7 : day - 1), dateTo: toDate(day - 1) };
}

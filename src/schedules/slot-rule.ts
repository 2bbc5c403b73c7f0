/** How often a schedule has a slot. */
export const frequencies = ['hour', 'day', 'week'] as const;
export type Frequency = (typeof frequencies)[number];

/** Days of the week by their number, Monday first; that of Monday is 1. */
export const weekdays = ['monday', 'tuesday', 'wednesday', 'thursday', 'friday', 'saturday', 'sunday'] as const;

/**
 * When a schedule has its slots. A slot is known by its number: hours since 1970 (UTC), or days or weeks of the calendar.
 * So it stays the same slot when the rules of its zone change, and when clocks do.
 */
export interface SlotRule {
  readonly every: Frequency;
  /** `HH:MM` on the wall clock of the zone; of an hour `:MM`, in UTC. */
  readonly at: string;
  /** Of a week: 1 to 7, Monday is 1. */
  readonly weekday?: number;
  readonly timezone: string;
}

/** A span of slots, both ends included. */
export type SlotSpan = readonly [first: number, last: number];

const hourMs = 3_600_000;
const dayMs = 24 * hourMs;

/** Days from the first of 1970, a Thursday, to the first day of week 0. */
const weekOffset = ({ weekday = 1 }: SlotRule): number => (weekday + 3) % 7;

function dayOf(rule: SlotRule, slot: number): number {
  return rule.every === 'week' ? slot * 7 + weekOffset(rule) : slot;
}

/** A date of the calendar, `YYYY-MM-DD`, by its days since 1970. */
export function toDate(day: number): string {
  return new Date(day * dayMs).toISOString().slice(0, 10);
}

/** Days since 1970 of a date of the calendar. */
export function toDay(date: string): number {
  return Date.parse(`${date}T00:00:00Z`) / dayMs;
}

/** The date of a slot, `YYYY-MM-DD`; of an hour in UTC. */
export function slotDate(rule: SlotRule, slot: number): string {
  return rule.every === 'hour' ? toDate(Math.floor(slot / 24)) : toDate(dayOf(rule, slot));
}

/** The slot that has a date, or the last one before it. Not of hours. */
export function slotOfDate(rule: SlotRule, date: string): number {
  const day = toDay(date);
  return rule.every === 'week' ? Math.floor((day - weekOffset(rule)) / 7) : day;
}

/** Unix milliseconds of an hour's slot. */
export function hourSlotMs({ at }: SlotRule, slot: number): number {
  return slot * hourMs + Number(at.slice(1)) * 60_000;
}

/** The newest slot of an hour whose time has come. */
export function newestHourSlot(rule: SlotRule, nowMs: number): number {
  return Math.floor((nowMs - hourSlotMs(rule, 0)) / hourMs);
}

/** What a slot is called: its date, `2026-11-23`; of an hour `2026-11-23T04Z`. */
export function slotName(rule: SlotRule, slot: number): string {
  return rule.every === 'hour' ? `${new Date(slot * hourMs).toISOString().slice(0, 13)}Z` : slotDate(rule, slot);
}

/** The arguments by which a slot asks for the period that ended before it: the hour, the day or the seven days. */
export function periodOf(rule: SlotRule, slot: number): Readonly<Record<string, string>> {
  if (rule.every === 'hour') return { tsFrom: String((slot - 1) * 3600), tsTo: String(slot * 3600 - 1) };
  const day = dayOf(rule, slot);
  return { dateFrom: toDate(rule.every === 'week' ? day - 7 : day - 1), dateTo: toDate(day - 1) };
}

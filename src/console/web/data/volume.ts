import { callApi, type AnswerOf } from '../frame/client.ts';
import { useLoaded, type Loaded } from '../parts/load.ts';

/** How many days back a page looks. */
export const periods = [7, 30, 90, 365] as const;
export type Period = (typeof periods)[number];

/** Events by UTC date and kind; a date and kind without events has no line. */
export type Volume = AnswerOf<'/api/data/v1/volume.json'>;

const dayMs = 86_400_000;

/** The last days up to today, in UTC, as arguments of the API. */
export function datesOf(period: Period): { readonly dateFrom: string; readonly dateTo: string } {
  const [from, to] = [Date.now() - (period - 1) * dayMs, Date.now()].map((ms) =>
    new Date(ms).toISOString().slice(0, 10),
  );
  return { dateFrom: from ?? '', dateTo: to ?? '' };
}

/** Every date of a volume, those without events too. */
export function listDates({ dateFrom, dateTo }: Volume): string[] {
  const dates: string[] = [];
  for (let ms = Date.parse(dateFrom); ms <= Date.parse(dateTo); ms += dayMs)
    dates.push(new Date(ms).toISOString().slice(0, 10));
  return dates;
}

/** The kinds of a volume, those with most events first. */
export function kindsOf(volume: Volume | undefined): { readonly kind: string; readonly events: number }[] {
  const sums = new Map<string, number>();
  for (const { kind, events } of volume?.days ?? []) sums.set(kind, (sums.get(kind) ?? 0) + events);
  return [...sums].map(([kind, events]) => ({ kind, events })).toSorted((a, b) => b.events - a.events);
}

/** A kind as people call it. */
export function nameOf(kind: string): string {
  return kind.replaceAll('_', ' ');
}

/** Loads the events by day and kind, of one app or of all. */
export function useVolume(period: Period, idApp?: string): Loaded<Volume> {
  return useLoaded(
    (signal) =>
      callApi('/api/data/v1/volume.json', {
        given: { ...datesOf(period), ...(idApp === undefined ? {} : { idApp }) },
        signal,
      }),
    [period, idApp],
  );
}

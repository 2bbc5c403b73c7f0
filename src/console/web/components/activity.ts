import { callApi, type AnswerOf } from '../shell/client.ts';
import { pause, useLoaded, type Loaded } from './load.ts';
import { addDays, isKnownZone, todayIn, wallTimeOf } from './zones.ts';

/** The events of all apps of the account, or of one, and a page of apps, most events first. */
export type Activity = AnswerOf<'/api/data/v1/activity.json'>;

type ActivityArguments = Readonly<Record<string, string>>;

/** Refresh interval until the first event is there, ms. */
const untilFirstMs = 5000;

export function useActivity(callArguments: ActivityArguments): Loaded<Activity> {
  return useLoaded(
    (signal) => callApi('/api/data/v1/activity.json', { callArguments, signal }),
    Object.values(callArguments),
    ({ events }) => (events === 0 ? untilFirstMs : undefined),
  );
}

/** An app of a list, with its events if they are counted. */
export type ListedApp = AnswerOf<'/api/data/v1/apps.json'>['apps'][number] & Partial<Activity['apps'][number]>;

/** Time after which apps are listed without their events, ms. */
const patienceMs = 1500;

/** Lists apps, most events first; without their events if counting takes long or fails. */
export function useListedApps(callArguments: ActivityArguments) {
  const activity = useActivity(callArguments);
  const isCounted = activity.data !== undefined && !activity.isLoading;
  const plain = useLoaded(
    async (signal) => {
      if (isCounted) return undefined;
      if (activity.error === undefined) await pause(patienceMs, signal);
      return await callApi('/api/data/v1/apps.json', { callArguments, signal });
    },
    [...Object.values(callArguments), isCounted, activity.error === undefined],
  );
  const data: { readonly apps: readonly ListedApp[]; readonly total: number } | undefined = activity.data ?? plain.data;
  const isLoading = activity.data === undefined ? plain.isLoading : activity.isLoading;
  return { data, activity, error: data === undefined ? (plain.error ?? activity.error) : undefined, isLoading };
}

/** Returns the days in a time zone up to the newest event, whose date is in UTC. */
export function newestDays(
  zone: string,
  lastDate: string,
  days: number,
): { readonly from: string; readonly to: string } {
  const known = isKnownZone(zone) ? zone : 'UTC';
  const dateOf = (time: string): string => wallTimeOf(known, Date.parse(time) / 1000).slice(0, 10);
  const [end, today] = [dateOf(`${lastDate}T23:59:59Z`), todayIn(known)];
  return { from: dateOf(`${addDays(lastDate, 1 - days)}T00:00:00Z`), to: end < today ? end : today };
}

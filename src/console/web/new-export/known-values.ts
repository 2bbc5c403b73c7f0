import { callApi, type AnswerOf } from '../shell/client.ts';
import { useLoaded } from '../components/load.ts';
import type { Activity } from '../components/activity.ts';
import type { Draft } from './draft.ts';

/** Names and values that the catalogue suggests for filters, most frequent first. */

type CatalogueEvent = AnswerOf<'/api/catalogue/v1/get.json'>['customEvents'][number];
export type KnownParameter = NonNullable<CatalogueEvent['parameters']>[number];

export interface KnownName {
  readonly name: string;
  readonly events: number;
}

/** Apps and events whose catalogue is read, at most: each is a query. */
const [maxApps, maxEvents] = [3, 3];

/** Returns the apps of a draft's filter, or those with the most events. */
function listApps({ filters }: Draft, activity: Activity | undefined): readonly string[] {
  const chosen = filters['idApp'] ?? [];
  const all =
    chosen.length > 0 ? chosen : (activity?.apps ?? []).filter(({ events }) => events > 0).map(({ idApp }) => idApp);
  return all.slice(0, maxApps);
}

const readCatalogue = (idApp: string, signal: AbortSignal, customEventName?: string) =>
  callApi('/api/catalogue/v1/get.json', { callArguments: { idApp, customEventName, days: '0' }, signal });

/** Returns the names of custom events. They are loaded one app at a time. */
export function useKnownNames(draft: Draft, activity: Activity | undefined): readonly KnownName[] {
  const idApps = listApps(draft, activity);
  const { data } = useLoaded(
    async (signal) => {
      const sums = new Map<string, number>();
      for (const idApp of idApps)
        for (const { customEventName, events } of (await readCatalogue(idApp, signal)).customEvents)
          sums.set(customEventName, (sums.get(customEventName) ?? 0) + events);
      return [...sums].map(([name, events]) => ({ name, events })).toSorted((a, b) => b.events - a.events);
    },
    [idApps.join()],
  );
  return data ?? [];
}

/** Returns the parameters of the chosen custom events, or of the most frequent ones. */
export function useKnownParameters(
  draft: Draft,
  activity: Activity | undefined,
  names: readonly KnownName[],
): readonly KnownParameter[] {
  const idApps = listApps(draft, activity);
  const chosen = draft.filters['eventName'] ?? [];
  const events = (chosen.length > 0 ? chosen : names.map(({ name }) => name)).slice(0, maxEvents);
  const { data } = useLoaded(
    async (signal) => {
      const found = new Map<string, KnownParameter>();
      for (const idApp of idApps)
        for (const event of events)
          for (const parameter of (await readCatalogue(idApp, signal, event)).customEvents[0]?.parameters ?? []) {
            const { seen = 0, examples = [] } = found.get(parameter.name) ?? {};
            const all = [...new Set([...examples, ...parameter.examples])];
            found.set(parameter.name, { ...parameter, seen: seen + parameter.seen, examples: all });
          }
      return [...found.values()].toSorted((a, b) => b.seen - a.seen);
    },
    [idApps.join(), JSON.stringify(events)],
  );
  return data ?? [];
}

import { useState } from 'preact/hooks';
import type { Activity } from '../components/activity.ts';
import { Check, Select } from '../components/controls.tsx';
import { formatCount } from '../components/format.ts';
import { Card } from '../components/layout.tsx';
import { chooseEvent, type DraftProps, type EventEntry } from './draft.ts';

/** Returns the events of the account that an export event has or is derived from; undefined if they are not counted. */
export function sumEvents({ kinds }: EventEntry, activity: Activity | undefined) {
  if (activity === undefined) return undefined;
  const own = activity.kinds.filter(({ kind }) => kinds.includes(kind));
  return {
    events: own.reduce((sum, { events }) => sum + events, 0),
    lastDate: own
      .map(({ lastDate }) => lastDate)
      .toSorted()
      .at(-1),
  };
}

function titleOf(entry: EventEntry, activity: Activity | undefined): string {
  const { name, kinds, isAll } = entry;
  const events = sumEvents(entry, activity)?.events;
  // Derived rows are not counted.
  if (events === undefined || (!isAll && kinds.length > 1)) return name;
  return `${name} · ${isAll || events === 0 ? '' : 'up to '}${formatCount(events)}`;
}

/** Selects the event, by groups; those without data are folded. */
export function EventField({ draft: { event: chosen }, dictionary, activity }: DraftProps) {
  const [showsEmpty, setShowsEmpty] = useState(false);
  const { events } = dictionary;
  const hasData = (entry: EventEntry): boolean => (sumEvents(entry, activity)?.events ?? 1) > 0;
  const empty = events.filter((entry) => !hasData(entry) && entry.name !== chosen);
  // Without any event there is nothing to prefer.
  const isFolded = !showsEmpty && empty.length > 0 && activity?.events !== 0;
  const shown = isFolded ? events.filter((entry) => !empty.includes(entry)) : events;
  const groups = dictionary.eventGroups.map(
    (group) => [group, shown.filter((entry) => entry.group === group)] as const,
  );
  const about = events.find(({ name }) => name === chosen)?.about;
  return (
    <Card id="event-title" title="Event">
      <Select
        label="Event"
        kind="hidden"
        value={chosen}
        aria-describedby="event-about"
        onChange={(event) => chooseEvent(event.currentTarget.value, dictionary)}
      >
        {groups.map(
          ([title, entries]) =>
            entries.length > 0 && (
              <optgroup key={title} label={title}>
                {entries.map((entry) => (
                  <option key={entry.name} value={entry.name}>
                    {titleOf(entry, activity)}
                  </option>
                ))}
              </optgroup>
            ),
        )}
      </Select>
      <p id="event-about" class="muted">
        {about}
      </p>
      {empty.length > 0 && activity?.events !== 0 && (
        <Check
          kind="small"
          label={`Show events without data (${formatCount(empty.length)})`}
          checked={showsEmpty}
          onChange={() => setShowsEmpty(!showsEmpty)}
        />
      )}
    </Card>
  );
}

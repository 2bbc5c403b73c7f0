import type { Dictionary, EventEntry } from './dictionary.ts';
import { chooseEvent, type Draft } from './draft.ts';

const isOfUsers = ({ name }: EventEntry): boolean => /^(user|newUsers)/.test(name);

/** Which event. */
export function EventField({ draft, dictionary }: { readonly draft: Draft; readonly dictionary: Dictionary }) {
  const { events } = dictionary;
  const groups = [
    ['Of devices and apps', events.filter((entry) => !isOfUsers(entry))],
    ['Of users', events.filter(isOfUsers)],
  ] as const;
  const about = events.find(({ name }) => name === draft.event)?.about;
  return (
    <section class="card stack" aria-labelledby="event-title">
      <h2 id="event-title">Event</h2>
      <label class="field">
        <span class="hidden">Event</span>
        <select
          class="event"
          value={draft.event}
          aria-describedby="event-about"
          onChange={(event) => chooseEvent(event.currentTarget.value, dictionary)}
        >
          {groups.map(([title, entries]) => (
            <optgroup key={title} label={title}>
              {entries.map(({ name }) => (
                <option key={name}>{name}</option>
              ))}
            </optgroup>
          ))}
        </select>
      </label>
      <p id="event-about" class="muted">
        {about}
      </p>
    </section>
  );
}

import { useState } from 'preact/hooks';
import { callApi, type ApiError } from '../frame/client.ts';
import { navigate } from '../frame/router.ts';
import type { OrderedArguments } from '../new-export/order.ts';
import { toApiError } from '../parts/load.ts';
import { Message } from '../parts/message.tsx';

const frequencies = ['hour', 'day', 'week'] as const;
const weekdays = ['monday', 'tuesday', 'wednesday', 'thursday', 'friday', 'saturday', 'sunday'];
/** A schedule sets the period of its exports by itself. */
const setBySchedule = /^(date|ts|availabilityTs)(From|To)$|^(asOf|sinceVersion)$/;

/** Makes a schedule of what was ordered: the same of each hour, day or week. */
export function ScheduleForm({ ordered }: { readonly ordered: OrderedArguments }) {
  const [every, setEvery] = useState<string>('day');
  const [at, setAt] = useState('04:00');
  const [weekday, setWeekday] = useState('monday');
  const [isFeed, setFeed] = useState(false);
  const [error, setError] = useState<ApiError>();
  const [isBusy, setBusy] = useState(false);
  const zone = String(ordered['timezone']);

  async function create(event: Event): Promise<void> {
    event.preventDefault();
    if (isBusy) return;
    setBusy(true);
    setError(undefined);
    const others = Object.entries(ordered).filter(([name]) => !setBySchedule.test(name));
    const given = {
      ...Object.fromEntries(others),
      selectors: [ordered['selectors'] ?? []].flat().join(','),
      every,
      at: every === 'hour' ? at.slice(-3) : at,
      ...(every === 'week' ? { weekday } : {}),
      ...(isFeed ? { sinceVersion: '0' } : {}),
    };
    try {
      await callApi('/api/schedule/v1/create.json', { method: 'POST', given });
      navigate('exports/schedules');
    } catch (caught) {
      setError(toApiError(caught));
      setBusy(false);
    }
  }

  return (
    <form class="stack inset" onSubmit={(event) => void create(event)}>
      <h3>A schedule of this export</h3>
      <div class="columns-3">
        <label class="field">
          <span>Every</span>
          <select value={every} onChange={(event) => setEvery(event.currentTarget.value)}>
            {frequencies.map((each) => (
              <option key={each}>{each}</option>
            ))}
          </select>
        </label>
        {every === 'week' && (
          <label class="field">
            <span>On</span>
            <select value={weekday} onChange={(event) => setWeekday(event.currentTarget.value)}>
              {weekdays.map((each) => (
                <option key={each}>{each}</option>
              ))}
            </select>
          </label>
        )}
        <label class="field">
          <span>{every === 'hour' ? 'At the minute' : `At, by the clocks of ${zone}`}</span>
          <input type="time" required value={at} onInput={(event) => setAt(event.currentTarget.value)} />
        </label>
      </div>
      <label class="check">
        <input type="checkbox" checked={isFeed} onChange={(event) => setFeed(event.currentTarget.checked)} />
        <span>Everything that came since the export before, late events too, instead of the {every} before</span>
      </label>
      {error !== undefined && <Message kind="error">{error.message}</Message>}
      <div class="row">
        <button type="submit" class="button primary" aria-disabled={isBusy}>
          Create the schedule
        </button>
      </div>
    </form>
  );
}

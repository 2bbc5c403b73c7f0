import { formatCount, formatSpan, formatTime } from '../parts/format.ts';
import { addDays, isKnownZone, ownZone, todayIn, wallTimeOf } from '../parts/zones.ts';
import type { Dictionary } from './dictionary.ts';
import { changeDraft, type Draft } from './draft.ts';
import { momentsOf } from './order.ts';

interface Preset {
  readonly title: string;
  readonly span: (today: string) => readonly [string, string];
}

const monthOf = (date: string): string => `${date.slice(0, 7)}-01`;

const presets: readonly Preset[] = [
  { title: 'Today', span: (today) => [today, today] },
  { title: 'Yesterday', span: (today) => [addDays(today, -1), addDays(today, -1)] },
  { title: 'Last 7 days', span: (today) => [addDays(today, -6), today] },
  { title: 'Last 30 days', span: (today) => [addDays(today, -29), today] },
  { title: 'This month', span: (today) => [monthOf(today), today] },
  {
    title: 'Last month',
    span: (today) => {
      const last = addDays(monthOf(today), -1);
      return [monthOf(last), last];
    },
  },
];

/** Zones by the part of the world, those that are likely first. */
function ZoneOptions({ dictionary }: { readonly dictionary: Dictionary }) {
  const likely = [...new Set([ownZone, dictionary.timezone, 'UTC'])].filter((zone) =>
    dictionary.timezones.includes(zone),
  );
  const groups = Map.groupBy(dictionary.timezones, (zone) =>
    zone.includes('/') ? (zone.split('/')[0] ?? '') : 'Others',
  );
  return (
    <>
      <optgroup label="Likely">
        {likely.map((zone) => (
          <option key={zone} value={zone}>
            {zone}
            {zone === ownZone ? ' (yours)' : ''}
          </option>
        ))}
      </optgroup>
      {[...groups].map(([group, zones]) => (
        <optgroup key={group} label={group}>
          {zones
            .filter((zone) => !likely.includes(zone))
            .map((zone) => (
              <option key={zone}>{zone}</option>
            ))}
        </optgroup>
      ))}
    </>
  );
}

/** How long a period is that has no problem, and where its ends are. */
function describeLength(draft: Draft): string {
  const { kind, from, to } = draft.period;
  if (draft.others['sinceVersion'] !== undefined) return 'What came since a version of the data: it has no period.';
  if (kind === 'days') {
    const days = (Date.parse(to) - Date.parse(from)) / 86_400_000 + 1;
    return `${days === 1 ? '1 day' : `${formatCount(days)} days`}, both ends included, by the clocks of ${draft.timezone}.`;
  }
  const moments = momentsOf(draft);
  const [first, last] = [moments.from, moments.to].map((at) => formatTime(at, draft.timezone, '2-digit'));
  return `${formatSpan(moments.to - moments.from + 1)}, from ${first} to ${last}, both seconds included.`;
}

/** The periods that are asked for most; the one that is chosen is marked. */
function Presets({ period, readToday }: { readonly period: Draft['period']; readonly readToday: () => string }) {
  return (
    <div class="chips" role="group" aria-label="Usual periods">
      {presets.map(({ title, span }) => {
        const [first, last] = span(readToday());
        const isChosen = period.from === first && period.to === last;
        // Anew: a page that is open over midnight was drawn yesterday.
        const choose = (): void => {
          const [from, to] = span(readToday());
          changeDraft({ period: { kind: 'days', from, to } });
        };
        return (
          <button key={title} type="button" class="chip" aria-pressed={isChosen} onClick={choose}>
            {title}
          </button>
        );
      })}
    </div>
  );
}

/** From when to when, in which zone. */
export function PeriodField({
  draft,
  dictionary,
  problem,
}: {
  readonly draft: Draft;
  readonly dictionary: Dictionary;
  readonly problem: string | undefined;
}) {
  const { period, timezone } = draft;
  const clockZone = isKnownZone(timezone) ? timezone : 'UTC';
  const isDays = period.kind === 'days';
  const { exact: _, ...shown } = period;
  const change = (changed: Partial<Draft['period']>): void => changeDraft({ period: { ...shown, ...changed } });
  const toKind = (kind: Draft['period']['kind']): void => {
    const [from, to] = [period.from.slice(0, 10), period.to.slice(0, 10)];
    if (kind === 'days') return change({ kind, from, to });
    // Of today only what has been can be asked for.
    const [end, now] = [`${to}T23:59:59`, wallTimeOf(clockZone, Date.now() / 1000)];
    change({ kind, from: `${from}T00:00:00`, to: end < now ? end : now });
  };
  const type = isDays ? 'date' : 'datetime-local';

  return (
    <section class="card stack" aria-labelledby="period-title">
      <div class="spread">
        <h2 id="period-title">Period</h2>
        <fieldset class="segments">
          <legend class="hidden">How the period is given</legend>
          {(['days', 'moments'] as const).map((kind) => (
            <label key={kind}>
              <input type="radio" name="period-kind" checked={period.kind === kind} onChange={() => toKind(kind)} />
              <span>{kind === 'days' ? 'Days' : 'Moments'}</span>
            </label>
          ))}
        </fieldset>
      </div>
      {isDays && <Presets period={period} readToday={() => todayIn(clockZone)} />}
      <div class="columns-3">
        {(['from', 'to'] as const).map((end) => (
          <label class="field" key={end}>
            <span>
              {isDays ? (end === 'from' ? 'First day' : 'Last day') : end === 'from' ? 'First second' : 'Last second'}
            </span>
            <input
              type={type}
              step={isDays ? undefined : 1}
              max={isDays ? todayIn(clockZone) : undefined}
              required
              value={period[end]}
              aria-invalid={problem !== undefined}
              aria-describedby="period-note"
              onInput={(event) => change({ [end]: event.currentTarget.value })}
            />
          </label>
        ))}
        <label class="field">
          <span>Time zone</span>
          <select
            value={timezone}
            onChange={(event) => changeDraft({ timezone: event.currentTarget.value, period: shown })}
          >
            <ZoneOptions dictionary={dictionary} />
          </select>
        </label>
      </div>
      <p id="period-note" class={problem === undefined ? 'muted small' : 'problem'}>
        {problem ?? describeLength(draft)}
      </p>
    </section>
  );
}

import { formatCount, formatTime } from '../components/format.ts';
import { Card, LoadingState } from '../components/layout.tsx';
import { useLoaded } from '../components/load.ts';
import { callApi, type AnswerOf } from '../shell/client.ts';

type Entry = AnswerOf<'/api/operations/v1/audit.json'>['entries'][number];

const badges: Readonly<Record<string, string>> = { refused: 'warn', failed: 'bad', started: 'busy' };

/** Describes who did it: a user, or a command with its system user. */
function describeActor({ idUser, name, systemUser }: Entry): string {
  if (idUser === undefined) return systemUser === undefined ? 'unknown' : `command of ${systemUser}`;
  return name === undefined ? `user ${idUser}` : `${name} (${idUser})`;
}

function EntryItem({ entry }: { readonly entry: Entry }) {
  const { time, action, outcome, address, subject, detail, count } = entry;
  const about = [describeActor(entry), address, subject, detail].filter((text) => text !== undefined && text !== '');
  return (
    <li>
      <div class="item-head">
        <span class="item-title">{action.replaceAll('_', ' ')}</span>
        <span class="muted small">{formatTime(Date.parse(time) / 1000)}</span>
      </div>
      <div class="row">
        {outcome !== 'ok' && <span class={`badge ${badges[outcome] ?? ''}`}>{outcome}</span>}
        <span>{about.join(' · ')}</span>
        {count !== undefined && <span class="muted small">{formatCount(count)} more times</span>}
      </div>
    </li>
  );
}

/** The newest entries of the audit log. */
export function AuditTab() {
  const loaded = useLoaded(
    (signal) => callApi('/api/operations/v1/audit.json', { callArguments: { limit: '100' }, signal }),
    [],
  );
  const { data, isLoading } = loaded;
  return (
    <Card id="audit" title="Audit log" isBusy={isLoading}>
      <LoadingState of={loaded} />
      {data?.entries.length === 0 && <p class="muted">No entries yet.</p>}
      {data !== undefined && data.entries.length > 0 && (
        <ul class="items">
          {data.entries.map((entry) => (
            <EntryItem key={entry.id} entry={entry} />
          ))}
        </ul>
      )}
      {data?.hasMore === true && (
        <p class="muted small">
          Older entries: <code>tributary audit --from DAY</code>
        </p>
      )}
    </Card>
  );
}

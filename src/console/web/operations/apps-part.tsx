import { useState } from 'preact/hooks';
import { callApi, type AnswerOf, type CallArguments } from '../frame/client.ts';
import { Check, Input, NumberInput, Select } from '../parts/controls.tsx';
import { formatTime } from '../parts/format.ts';
import { ManagedList, type Change, type Made, type Row, type RowAction } from './managed-list.tsx';

/** An app of any account, as operators see it. */
type OperatedApp = AnswerOf<'/api/operations/v1/apps.json'>['apps'][number];

const platforms = ['web', 'mobile-a', 'mobile-b', 'mini-app', 'game'];

async function makeChange(
  method: 'add' | 'set' | 'token' | 'revoke' | 'remove' | 'restore',
  given: CallArguments,
): Promise<Made | undefined> {
  const answer = await callApi(`/api/operations/v1/app/${method}.json`, { method: 'POST', given });
  return 'token' in answer ? { title: 'The token', id: ['App', answer.idApp], value: answer.token } : undefined;
}

const addition: Change = {
  title: 'Add an app',
  action: 'Add',
  content: (
    <>
      <NumberInput label="Id, a whole number" name="idApp" required />
      <Input label="Title" name="title" maxLength={255} autocomplete="off" />
      <Select label="Platform" name="platform" choices={platforms} />
      <NumberInput label="Account: its users export the app" name="idAccount" required defaultValue="1" />
    </>
  ),
  make: (given) => makeChange('add', given),
};

function toRevocation({ idApp, title, tokens }: OperatedApp, prefix: string): Change {
  return {
    title: `Take a token of ${title} (${idApp})`,
    action: 'Take it',
    isDangerous: true,
    content: (
      <p>
        Whoever sends with the token that begins with {prefix} is answered 403 within a second.
        {tokens.length === 1 && ' It is the last one: no event of the app is taken then.'}
      </p>
    ),
    make: () => makeChange('revoke', { idApp, prefix }),
  };
}

function listActions({ idApp, title, idProject, removedAt }: OperatedApp): readonly RowAction[] {
  const name = `${title} (${idApp})`;
  const restoring: Change = {
    title: `Restore ${name}`,
    action: 'Restore',
    content: <p>It comes back as it was, with a new token.</p>,
    make: () => makeChange('restore', { idApp }),
  };
  if (removedAt !== undefined) return [['Restore', 'Restore app', restoring]];
  const giving: Change = {
    title: `A further token of ${name}`,
    action: 'Give a token',
    content: <p>The tokens that it has stay valid: move its senders over, then take the old one.</p>,
    make: () => makeChange('token', { idApp }),
  };
  const setting: Change = {
    title: `Change ${name}`,
    action: 'Change',
    content: (
      <>
        <Input label="Title" name="title" required maxLength={255} autocomplete="off" defaultValue={title} />
        <NumberInput
          label="Project, or none: for the filter of exports"
          name="idProject"
          defaultValue={idProject ?? ''}
        />
      </>
    ),
    make: ({ idProject: project = 'none', ...given }) => makeChange('set', { idApp, idProject: project, ...given }),
  };
  const removal: Change = {
    title: `Remove ${name}`,
    action: 'Remove',
    isDangerous: true,
    content: (
      <p>
        All its tokens end within a second, and exports leave its rows out. They stay in the lake; it can be restored.
      </p>
    ),
    make: () => makeChange('remove', { idApp }),
  };
  return [
    ['Give a token', 'Give a token to app', giving],
    ['Change', 'Change app', setting],
    ['Remove', 'Remove app', removal, 'plain'],
  ];
}

function Tokens({ app, onAsk }: { readonly app: OperatedApp; readonly onAsk: (change: Change) => void }) {
  const { idApp, tokens } = app;
  return (
    <ul class="chips" aria-label={`Tokens of app ${idApp}`}>
      {tokens.map(({ prefix, createdAt }) => (
        <li class="chip" key={prefix + createdAt} title={`Made ${formatTime(Date.parse(createdAt) / 1000)}`}>
          <code>{prefix}…</code>
          <button
            class="chip-button"
            type="button"
            aria-label={`Take the token ${prefix} of app ${idApp}`}
            onClick={() => onAsk(toRevocation(app, prefix))}
          >
            Take
          </button>
        </li>
      ))}
      {tokens.length === 0 && <li class="problem">No token: its events are refused.</li>}
    </ul>
  );
}

function toRow(app: OperatedApp): Row {
  const { idApp, title, platform, idAccount, removedAt } = app;
  const removed = removedAt === undefined ? '' : ` · removed ${formatTime(Date.parse(removedAt) / 1000)}`;
  return {
    id: idApp,
    title,
    about: `App ${idApp} · ${platform} · account ${idAccount}${removed}`,
    content: (onAsk) => removedAt === undefined && <Tokens app={app} onAsk={onAsk} />,
    actions: listActions(app),
  };
}

/** The apps of all accounts, live or removed. */
export function AppsPart() {
  const [isRemoved, setRemoved] = useState(false);
  return (
    <ManagedList
      id="operated-apps"
      title="Apps"
      find="Find an app by title or id"
      add={addition}
      nothing={isRemoved ? 'None was removed.' : 'There is none.'}
      load={async (part, signal) => {
        const given = { ...part, ...(isRemoved ? { removed: '1' } : {}) };
        const { apps, total } = await callApi('/api/operations/v1/apps.json', { given, signal });
        return { rows: apps.map(toRow), total };
      }}
      keys={[isRemoved]}
      controls={(toStart) => (
        <Check
          kind="small"
          label="Removed ones"
          checked={isRemoved}
          onChange={() => {
            setRemoved(!isRemoved);
            toStart();
          }}
        />
      )}
    />
  );
}

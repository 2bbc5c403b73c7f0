import { useState } from 'preact/hooks';
import { callApi, type AnswerOf, type CallArguments } from '../shell/client.ts';
import { Check, Input, NumberInput, Select } from '../components/controls.tsx';
import { formatTime } from '../components/format.ts';
import { ManagedList, type RowChange, type NewSecret, type Row, type RowAction } from './managed-list.tsx';

/** An app of any account, as operators see it. */
type OperatedApp = AnswerOf<'/api/operations/v1/apps.json'>['apps'][number];

const platforms = ['web', 'mobile-a', 'mobile-b', 'mini-app', 'game'];

async function makeChange(
  method: 'add' | 'set' | 'token' | 'revoke' | 'remove' | 'restore',
  callArguments: CallArguments,
): Promise<NewSecret | undefined> {
  const answer = await callApi(`/api/operations/v1/app/${method}.json`, { method: 'POST', callArguments });
  return 'token' in answer ? { title: 'New token', id: ['App', answer.idApp], value: answer.token } : undefined;
}

const addition: RowChange = {
  title: 'Add app',
  action: 'Add',
  content: (
    <>
      <NumberInput label="ID (whole number)" name="idApp" required />
      <Input label="Title" name="title" maxLength={255} autocomplete="off" />
      <Select label="Platform" name="platform" choices={platforms} />
      <NumberInput label="Account whose users can export the app" name="idAccount" required defaultValue="1" />
    </>
  ),
  make: (fields) => makeChange('add', fields),
};

function toRevocation({ idApp, title, tokens }: OperatedApp, prefix: string): RowChange {
  return {
    title: `Revoke a token of ${title} (${idApp})`,
    action: 'Revoke',
    isDangerous: true,
    content: (
      <p>
        Clients that use the token {prefix}… get 403 within a second.
        {tokens.length === 1 && ' It is the last token: all imports of the app are then rejected.'}
      </p>
    ),
    make: () => makeChange('revoke', { idApp, prefix }),
  };
}

function listActions({ idApp, title, idProject, removedAt }: OperatedApp): readonly RowAction[] {
  const name = `${title} (${idApp})`;
  const restoring: RowChange = {
    title: `Restore ${name}`,
    action: 'Restore',
    content: <p>Restores the app with its settings and rows, and creates a new token.</p>,
    make: () => makeChange('restore', { idApp }),
  };
  if (removedAt !== undefined) return [['Restore', 'Restore app', restoring]];
  const giving: RowChange = {
    title: `New token for ${name}`,
    action: 'Add token',
    content: <p>Existing tokens stay valid. Move the clients to the new token, then revoke the old one.</p>,
    make: () => makeChange('token', { idApp }),
  };
  const setting: RowChange = {
    title: `Change ${name}`,
    action: 'Change',
    content: (
      <>
        <Input label="Title" name="title" required maxLength={255} autocomplete="off" defaultValue={title} />
        <NumberInput label="Project (optional, a filter of exports)" name="idProject" defaultValue={idProject ?? ''} />
      </>
    ),
    make: ({ idProject: project = 'none', ...fields }) => makeChange('set', { idApp, idProject: project, ...fields }),
  };
  const removal: RowChange = {
    title: `Remove ${name}`,
    action: 'Remove',
    isDangerous: true,
    content: (
      <p>
        Its tokens stop working within a second, and exports omit its rows. The rows stay in the lake, and you can
        restore the app.
      </p>
    ),
    make: () => makeChange('remove', { idApp }),
  };
  return [
    ['Add token', 'Add token to app', giving],
    ['Change', 'Change app', setting],
    ['Remove', 'Remove app', removal, 'plain'],
  ];
}

function Tokens({ app, onAsk }: { readonly app: OperatedApp; readonly onAsk: (rowChange: RowChange) => void }) {
  const { idApp, tokens } = app;
  return (
    <ul class="chips" aria-label={`Tokens of app ${idApp}`}>
      {tokens.map(({ prefix, createdAt }) => (
        <li class="chip" key={prefix + createdAt} title={`Created ${formatTime(Date.parse(createdAt) / 1000)}`}>
          <code>{prefix}…</code>
          <button
            class="chip-button"
            type="button"
            aria-label={`Revoke token ${prefix} of app ${idApp}`}
            onClick={() => onAsk(toRevocation(app, prefix))}
          >
            Revoke
          </button>
        </li>
      ))}
      {tokens.length === 0 && <li class="problem">No token: imports are rejected.</li>}
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
export function AppsTab() {
  const [isRemoved, setRemoved] = useState(false);
  return (
    <ManagedList
      id="operated-apps"
      title="Apps"
      find="Find an app by title or id"
      add={addition}
      nothing={isRemoved ? 'No removed apps found.' : 'No apps found.'}
      load={async (part, signal) => {
        const callArguments = { ...part, ...(isRemoved ? { removed: '1' } : {}) };
        const { apps, total } = await callApi('/api/operations/v1/apps.json', { callArguments, signal });
        return { rows: apps.map(toRow), total };
      }}
      keys={[isRemoved]}
      controls={(toStart) => (
        <Check
          kind="small"
          label="Show removed"
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

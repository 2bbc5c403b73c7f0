import { useState } from 'preact/hooks';
import { callApi, type AnswerOf, type CallArguments } from '../frame/client.ts';
import { Button, Check, Input, NumberInput, Select } from '../parts/controls.tsx';
import { formatTime } from '../parts/format.ts';
import { ChangeDialog, ManagedList, type AskedProps } from './managed-list.tsx';

/** An app of any account, as operators see it. */
type OperatedApp = AnswerOf<'/api/operations/v1/apps.json'>['apps'][number];

/** A change of apps that is asked for. */
type AppChange =
  | { readonly kind: 'add' }
  | { readonly kind: 'set'; readonly app: OperatedApp }
  | { readonly kind: 'token' | 'remove' | 'restore'; readonly app: OperatedApp }
  | { readonly kind: 'revoke'; readonly app: OperatedApp; readonly prefix: string };

const platforms = ['web', 'mobile-a', 'mobile-b', 'mini-app', 'game'];

function AddFields() {
  return (
    <>
      <NumberInput label="Id, a whole number" name="idApp" required />
      <Input label="Title" name="title" maxLength={255} autocomplete="off" />
      <Select label="Platform" name="platform" choices={platforms} />
      <NumberInput label="Account: its users export the app" name="idAccount" required defaultValue="1" />
    </>
  );
}

function SetFields({ app: { title, idProject } }: { readonly app: OperatedApp }) {
  return (
    <>
      <Input label="Title" name="title" required maxLength={255} autocomplete="off" defaultValue={title} />
      <NumberInput
        label="Project, or none: for the filter of exports"
        name="idProject"
        defaultValue={idProject ?? ''}
      />
    </>
  );
}

/** What is said before a change of an app is made, and what makes it. */
interface Question {
  readonly title: string;
  readonly action: string;
  readonly isDangerous?: true;
  readonly text: string;
  /** Name of the method, which answers a token where one is made. */
  readonly method: 'token' | 'revoke' | 'remove' | 'restore';
  readonly given: CallArguments;
}

function toQuestion(asked: Exclude<AppChange, { kind: 'add' | 'set' }>): Question {
  const { idApp, title, tokens } = asked.app;
  const name = `${title} (${idApp})`;
  switch (asked.kind) {
    case 'token':
      return {
        title: `A further token of ${name}`,
        action: 'Give a token',
        text: 'The tokens that it has stay valid: move its senders over, then take the old one.',
        method: 'token',
        given: { idApp },
      };
    case 'revoke': {
      const last = tokens.length === 1 ? ' It is the last one: no event of the app is taken then.' : '';
      return {
        title: `Take a token of ${name}`,
        action: 'Take it',
        isDangerous: true,
        text: `Whoever sends with the token that begins with ${asked.prefix} is answered 403 within a second.${last}`,
        method: 'revoke',
        given: { idApp, prefix: asked.prefix },
      };
    }
    case 'remove':
      return {
        title: `Remove ${name}`,
        action: 'Remove',
        isDangerous: true,
        text: 'All its tokens end within a second, and exports leave its rows out. They stay in the lake; it can be restored.',
        method: 'remove',
        given: { idApp },
      };
    case 'restore':
      return {
        title: `Restore ${name}`,
        action: 'Restore',
        text: 'It comes back as it was, with a new token.',
        method: 'restore',
        given: { idApp },
      };
    default:
      return asked satisfies never;
  }
}

/** What a change asks or wants to know, and what it does. */
function AppChangeDialog({ asked, onDone, onClose }: AskedProps<AppChange>) {
  async function make(method: 'add' | 'set' | Question['method'], given: CallArguments): Promise<void> {
    const answer = await callApi(`/api/operations/v1/app/${method}.json`, { method: 'POST', given });
    if ('token' in answer) onDone({ title: 'The token', id: ['App', answer.idApp], value: answer.token });
    else onDone();
  }
  if (asked.kind === 'add')
    return (
      <ChangeDialog title="Add an app" action="Add" onClose={onClose} onSubmit={(given) => make('add', given)}>
        <AddFields />
      </ChangeDialog>
    );
  if (asked.kind === 'set') {
    const { idApp, title } = asked.app;
    const set = ({ idProject = 'none', ...given }: Readonly<Record<string, string>>): Promise<void> =>
      make('set', { idApp, idProject, ...given });
    return (
      <ChangeDialog title={`Change ${title} (${idApp})`} action="Change" onClose={onClose} onSubmit={set}>
        <SetFields app={asked.app} />
      </ChangeDialog>
    );
  }
  const { text, method, given, ...question } = toQuestion(asked);
  return (
    <ChangeDialog {...question} onClose={onClose} onSubmit={() => make(method, given)}>
      <p>{text}</p>
    </ChangeDialog>
  );
}

/** What is done with an app: what the button says, to whom sees the row and to whom hears it. */
const liveActions = [
  { kind: 'token', text: 'Give a token', label: 'Give a token to app', isPlain: false },
  { kind: 'set', text: 'Change', label: 'Change app', isPlain: false },
  { kind: 'remove', text: 'Remove', label: 'Remove app', isPlain: true },
] as const;
const removedActions = [{ kind: 'restore', text: 'Restore', label: 'Restore app', isPlain: false }] as const;

function AppRow({ app, onAsk }: { readonly app: OperatedApp; readonly onAsk: (asked: AppChange) => void }) {
  const { idApp, title, platform, idAccount, tokens, removedAt } = app;
  return (
    <li>
      <div class="item-head">
        <span class="item-title">{title}</span>
        <span class="muted small">
          App {idApp} · {platform} · account {idAccount}
          {removedAt !== undefined && ` · removed ${formatTime(Date.parse(removedAt) / 1000)}`}
        </span>
      </div>
      {removedAt === undefined && (
        <ul class="chips" aria-label={`Tokens of app ${idApp}`}>
          {tokens.map(({ prefix, createdAt }) => (
            <li class="chip" key={prefix + createdAt} title={`Made ${formatTime(Date.parse(createdAt) / 1000)}`}>
              <code>{prefix}…</code>
              <button
                class="chip-button"
                type="button"
                aria-label={`Take the token ${prefix} of app ${idApp}`}
                onClick={() => onAsk({ kind: 'revoke', app, prefix })}
              >
                Take
              </button>
            </li>
          ))}
          {tokens.length === 0 && <li class="problem">No token: its events are refused.</li>}
        </ul>
      )}
      <div class="row item-actions">
        {(removedAt === undefined ? liveActions : removedActions).map(({ kind, text, label, isPlain }) => (
          <Button
            key={kind}
            kind={isPlain ? 'small plain' : 'small'}
            aria-label={`${label} ${idApp}`}
            onClick={() => onAsk({ kind, app })}
          >
            {text}
          </Button>
        ))}
      </div>
    </li>
  );
}

/** The apps of all accounts, and what changes them. */
export function AppsPart() {
  const [isRemoved, setRemoved] = useState(false);
  return (
    <ManagedList
      id="operated-apps"
      title="Apps"
      find="Find an app by title or id"
      add="Add an app"
      nothing={isRemoved ? 'None was removed.' : 'There is none.'}
      load={async (part, signal) => {
        const given = { ...part, ...(isRemoved ? { removed: '1' } : {}) };
        const { apps, total } = await callApi('/api/operations/v1/apps.json', { given, signal });
        return { rows: apps, total };
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
      drawRow={(app, ask: (asked: AppChange) => void) => <AppRow key={app.idApp} app={app} onAsk={ask} />}
      dialog={AppChangeDialog}
    />
  );
}

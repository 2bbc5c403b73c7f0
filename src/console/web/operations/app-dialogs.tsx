import type { CallArguments } from '../frame/call-arguments.ts';
import { callApi, type AnswerOf } from '../frame/client.ts';
import { ChangeDialog, type Made } from './dialog.tsx';

/** An app of any account, as operators see it. */
export type OperatedApp = AnswerOf<'/api/operations/v1/apps.json'>['apps'][number];

/** A change of apps that is asked for. */
export type AppChange =
  | { readonly kind: 'add' }
  | { readonly kind: 'set'; readonly app: OperatedApp }
  | { readonly kind: 'token' | 'remove' | 'restore'; readonly app: OperatedApp }
  | { readonly kind: 'revoke'; readonly app: OperatedApp; readonly prefix: string };

const platforms = ['web', 'mobile-a', 'mobile-b', 'mini-app', 'game'];

function AddFields() {
  return (
    <>
      <label class="field">
        <span>Id, a whole number</span>
        <input name="idApp" inputMode="numeric" required pattern="[1-9][0-9]{0,14}" autocomplete="off" />
      </label>
      <label class="field">
        <span>Title</span>
        <input name="title" maxLength={255} autocomplete="off" />
      </label>
      <label class="field">
        <span>Platform</span>
        <select name="platform">
          {platforms.map((platform) => (
            <option key={platform}>{platform}</option>
          ))}
        </select>
      </label>
      <label class="field">
        <span>Account: its users export the app</span>
        <input name="idAccount" inputMode="numeric" required pattern="[1-9][0-9]{0,14}" defaultValue="1" />
      </label>
    </>
  );
}

function SetFields({ app: { title, idProject } }: { readonly app: OperatedApp }) {
  return (
    <>
      <label class="field">
        <span>Title</span>
        <input name="title" required maxLength={255} autocomplete="off" defaultValue={title} />
      </label>
      <label class="field">
        <span>Project, or none: for the filter of exports</span>
        <input
          name="idProject"
          inputMode="numeric"
          pattern="[1-9][0-9]{0,14}"
          autocomplete="off"
          defaultValue={idProject ?? ''}
        />
      </label>
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
export function AppChangeDialog({
  asked,
  onDone,
  onClose,
}: {
  readonly asked: AppChange;
  /** `made`: a token to show. */
  readonly onDone: (made?: Made) => void;
  readonly onClose: () => void;
}) {
  async function make(method: 'add' | 'set' | Question['method'], given: CallArguments): Promise<void> {
    const answer = await callApi(`/api/operations/v1/app/${method}.json`, { method: 'POST', given });
    if ('token' in answer) onDone({ title: 'The token', of: [['App', answer.idApp]], value: answer.token });
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

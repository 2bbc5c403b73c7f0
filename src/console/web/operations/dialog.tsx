import type { ComponentChildren } from 'preact';
import { useLayoutEffect, useState } from 'preact/hooks';
import { isShownOnce } from '../frame/session.ts';
import { CopyButton } from '../parts/copy-button.tsx';
import { Message } from '../parts/message.tsx';
import { toApiError } from '../parts/load.ts';
import { useModal } from '../parts/modal.ts';

/** A dialog that is open for as long as it is there; Escape closes it, and focus goes back to where it was. */
export function Dialog({
  title,
  onClose,
  children,
}: {
  readonly title: string;
  readonly onClose: () => void;
  readonly children: ComponentChildren;
}) {
  const dialog = useModal();
  return (
    <dialog ref={dialog} class="dialog" aria-labelledby="dialog-title" onClose={onClose}>
      <h2 id="dialog-title">{title}</h2>
      {children}
    </dialog>
  );
}

/** A token or a secret that was just made. */
export interface Made {
  readonly title: string;
  /** What it goes with: the app's or the user's id. */
  readonly of: readonly (readonly [string, string])[];
  readonly value: string;
}

/** Shows a token or a secret, this once: it is in this page's memory alone, and goes with the dialog. */
export function MadeDialog({
  made: { title, of, value },
  onClose,
}: {
  readonly made: Made;
  readonly onClose: () => void;
}) {
  useLayoutEffect(() => {
    isShownOnce.value = true;
    return () => void (isShownOnce.value = false);
  }, []);
  return (
    <Dialog title={title} onClose={onClose}>
      <div class="stack">
        <dl class="facts">
          {of.map(([name, text]) => (
            <div class="fact" key={name}>
              <dt>{name}</dt>
              <dd>{text}</dd>
            </div>
          ))}
        </dl>
        <label class="field">
          <span>Shown this once</span>
          <input class="mono" readOnly value={value} onFocus={(event) => event.currentTarget.select()} />
        </label>
        <Message kind="warning">
          Keep it now: nobody can show it again, and another one has to be made where it is lost.
        </Message>
        <div class="row">
          <CopyButton text={value} kind="primary" />
          <button class="button" type="button" onClick={onClose}>
            Done
          </button>
        </div>
      </div>
    </Dialog>
  );
}

/** A change, with its form or question; it closes when it was made, and says what is wrong where it was not. */
export function ChangeDialog({
  title,
  action,
  isDangerous = false,
  onSubmit,
  onClose,
  children,
}: {
  readonly title: string;
  /** What the button says. */
  readonly action: string;
  readonly isDangerous?: boolean;
  readonly onSubmit: (given: Readonly<Record<string, string>>) => Promise<void>;
  readonly onClose: () => void;
  readonly children: ComponentChildren;
}) {
  const [problem, setProblem] = useState('');
  const [isBusy, setBusy] = useState(false);

  async function submit(event: SubmitEvent): Promise<void> {
    event.preventDefault();
    if (isBusy || !(event.currentTarget instanceof HTMLFormElement)) return;
    const given = [...new FormData(event.currentTarget)].flatMap(([name, value]) =>
      typeof value === 'string' ? [[name, value.trim()] as const] : [],
    );
    setBusy(true);
    setProblem('');
    try {
      await onSubmit(Object.fromEntries(given.filter(([, value]) => value !== '')));
    } catch (error) {
      setProblem(toApiError(error).message);
    } finally {
      setBusy(false);
    }
  }

  return (
    <Dialog title={title} onClose={onClose}>
      <form class="stack" onSubmit={(event) => void submit(event)}>
        {children}
        {problem !== '' && <Message kind="error">{problem}</Message>}
        <div class="row">
          <button class={`button ${isDangerous ? 'danger' : 'primary'}`} type="submit" aria-disabled={isBusy}>
            {action}
          </button>
          <button class="button plain" type="button" onClick={onClose}>
            Cancel
          </button>
        </div>
      </form>
    </Dialog>
  );
}

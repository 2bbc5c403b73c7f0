import { useState } from 'preact/hooks';
import { Button, Input } from '../components/controls.tsx';
import { ErrorMessage, MessageBox, useModal } from '../components/layout.tsx';
import { useAction } from '../components/load.ts';
import { changePassword } from './session.ts';

/** The dialog in which users set their own password. */
export function PasswordDialog({ onClose }: { readonly onClose: () => void }) {
  const dialog = useModal();
  const [isDone, setDone] = useState(false);
  const [isDifferent, setDifferent] = useState(false);
  const { isBusy, error, act } = useAction();

  async function submit(event: SubmitEvent): Promise<void> {
    event.preventDefault();
    if (!(event.currentTarget instanceof HTMLFormElement) || isBusy) return;
    const fields = new FormData(event.currentTarget);
    const [secret = '', password = '', repeated = ''] = ['secret', 'password', 'repeated'].map((name) =>
      fields
        .getAll(name)
        .map((value) => (typeof value === 'string' ? value : ''))
        .join(''),
    );
    setDifferent(password !== repeated);
    if (password === repeated) await act(() => changePassword(secret, password).then(() => setDone(true)));
  }

  return (
    <dialog ref={dialog} class="dialog" aria-labelledby="password-title" onClose={onClose}>
      <h2 id="password-title">Change password</h2>
      {isDone ? (
        <div class="stack">
          <MessageBox kind="info">Your password was changed. Your other sessions have ended.</MessageBox>
          <Button kind="primary" onClick={onClose}>
            Done
          </Button>
        </div>
      ) : (
        <form class="stack" onSubmit={(event) => void submit(event)}>
          <Input
            label="Current password or secret"
            name="secret"
            type="password"
            autocomplete="current-password"
            required
          />
          <Input
            label="New password (12 characters or more)"
            name="password"
            type="password"
            autocomplete="new-password"
            minLength={12}
            maxLength={200}
            required
          />
          <Input label="Repeat new password" name="repeated" type="password" autocomplete="new-password" required />
          {isDifferent && <MessageBox kind="error">The two new passwords differ.</MessageBox>}
          <ErrorMessage error={error} />
          <div class="row">
            <Button kind="primary" type="submit" aria-disabled={isBusy}>
              Change password
            </Button>
            <Button kind="plain" onClick={onClose}>
              Cancel
            </Button>
          </div>
        </form>
      )}
    </dialog>
  );
}

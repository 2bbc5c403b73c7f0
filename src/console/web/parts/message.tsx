import type { ComponentChildren } from 'preact';

/** Something that has to be said where it belongs; errors are read out at once. */
export function Message({
  kind,
  children,
}: {
  readonly kind: 'error' | 'warning' | 'info' | 'success';
  readonly children: ComponentChildren;
}) {
  return (
    <div class={`message ${kind}`} role={kind === 'error' ? 'alert' : undefined}>
      {children}
    </div>
  );
}

"""A plain vision loop: BatchNorm, a scheduler, clipping, mixed precision where there is a GPU."""

import lowtide
import torch
from errors import sometimes
from torch import nn
from torch.nn import functional

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def main():
    torch.manual_seed(0)
    layers = []
    for inside, out in ((3, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(inside, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU(), nn.MaxPool2d(2)]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.1), nn.Linear(64, 4)).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 24)
    scaler = torch.amp.GradScaler(DEVICE, enabled=DEVICE == "cuda")
    autocast = torch.autocast(DEVICE, dtype=torch.float16, enabled=DEVICE == "cuda")

    @sometimes
    def loss_of(part):
        return functional.cross_entropy(model(part["image"]), part["label"])

    with lowtide.Guard(
        model, optimizer, line="90%", clip=1.0, scaler=scaler, scheduler=scheduler, autocast=autocast, run="runs/vision"
    ) as guard:
        for step in range(24):
            label = torch.randint(4, (16,))
            image = torch.randn(16, 3, 32, 32) + label.view(-1, 1, 1, 1)
            loss = guard.step({"image": image.to(DEVICE), "label": label.to(DEVICE)}, loss_of)
            if step % 8 == 7:
                print(f"step {step + 1}: loss {loss.item():.3f}, learning rate {scheduler.get_last_lr()[0]:.4f}")
        print(guard.report())
    print("look at it: lowtide report runs/vision")


if __name__ == "__main__":
    main()

//! How near frames are to each other: PSNR and SSIM, for values from 0 to 1.
//!
//! Both are computed in bands of rows, each moved to the device alone, so that a frame of any size needs little memory
//! there, and in 32 bits whatever
//! the run's precision is: no convolution is used, because autocast narrows those.

use lowtide_torch::tch::{Device, Kind, Tensor};

/// The filter of Wang and others (2004).
const RADIUS: i64 = 5;
const SIGMA: f64 = 1.5;
const WINDOW: i64 = 2 * RADIUS + 1;
/// (K L)^2 for K1 = 0.01, K2 = 0.03 and values from 0 to L = 1.
const C1: f64 = 0.01 * 0.01;
const C2: f64 = 0.03 * 0.03;

/// Rows of a band.
const BAND: i64 = 64;
/// What equal frames are given in place of infinity: an error of a hundred-thousandth.
const MOST_PSNR: f64 = 100.0;

/// Peak signal to noise ratio in dB of a frame \[channels, rows, columns\]; 100 for frames that are equal.
#[must_use]
pub fn psnr(frame: &Tensor, reference: &Tensor, device: Device) -> f64 {
    let rows = frame.size()[1];
    let squares = (0..rows)
        .step_by(BAND as usize)
        .map(|top| {
            let [frame, reference] = bands(frame, reference, top, BAND.min(rows - top), device);
            (frame - reference).square().sum(Kind::Double).double_value(&[])
        })
        .sum::<f64>();
    let mean = squares / frame.numel() as f64;
    (-10.0 * mean.log10()).min(MOST_PSNR)
}

/// Structural similarity of a frame \[channels, rows, columns\], at least 11 by 11: the mean over channels and over all
/// places where the window of 11 by 11 (Gaussian, deviation 1.5) is inside the frame.
#[must_use]
pub fn ssim(frame: &Tensor, reference: &Tensor, device: Device) -> f64 {
    let [channels, rows, columns]: [i64; 3] = frame.size().try_into().expect("channels, rows and columns");
    let inside = rows - 2 * RADIUS;
    let sum = (0..inside)
        .step_by(BAND as usize)
        .map(|top| {
            let [frame, reference] = bands(frame, reference, top, BAND.min(inside - top) + 2 * RADIUS, device);
            similarity(&frame, &reference).sum(Kind::Double).double_value(&[])
        })
        .sum::<f64>();
    sum / (channels * inside * (columns - 2 * RADIUS)) as f64
}

fn bands(frame: &Tensor, reference: &Tensor, top: i64, rows: i64, device: Device) -> [Tensor; 2] {
    [frame, reference].map(|image| image.narrow(1, top, rows).to_device(device).to_kind(Kind::Float).clamp(0.0, 1.0))
}

/// SSIM at every place inside.
fn similarity(x: &Tensor, y: &Tensor) -> Tensor {
    let (mean_x, mean_y) = (smooth(x), smooth(y));
    let square_x = mean_x.square();
    let square_y = mean_y.square();
    let product = mean_x * mean_y;
    let variance_x = smooth(&x.square()) - &square_x;
    let variance_y = smooth(&y.square()) - &square_y;
    let covariance = smooth(&(x * y)) - &product;
    let above = (product * 2.0 + C1) * (covariance * 2.0 + C2);
    above / ((square_x + square_y + C1) * (variance_x + variance_y + C2))
}

/// The Gaussian mean around every pixel that has all its neighbours.
fn smooth(x: &Tensor) -> Tensor {
    let down = weighted(x, 1);
    weighted(&down, 2)
}

fn weighted(x: &Tensor, dimension: i64) -> Tensor {
    let length = x.size()[dimension as usize] - 2 * RADIUS;
    let weights = weights();
    let mut sum = x.narrow(dimension, 0, length) * weights[0];
    for (shift, weight) in (1..).zip(&weights[1..]) {
        sum += x.narrow(dimension, shift, length) * *weight;
    }
    sum
}

fn weights() -> [f64; WINDOW as usize] {
    let weights: [f64; WINDOW as usize] =
        std::array::from_fn(|at| (-0.5 * ((at as f64 - RADIUS as f64) / SIGMA).powi(2)).exp());
    let sum: f64 = weights.iter().sum();
    weights.map(|weight| weight / sum)
}
